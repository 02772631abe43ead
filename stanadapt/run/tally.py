"""One progress bar for many fits, or lines in a log file; as progress.py has it for the chains of one."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

from .progress import LOG_SECONDS, LOG_SHARE, bar, has_bars, tell, time_left


class Tally:
    """Counts fits and shows how many there are; a context manager. `enabled=False` shows nothing."""

    def __init__(self, name: str, total: int | None, enabled: bool) -> None:
        self.name, self.total, self.enabled = name, total, enabled
        self.done = self.failed = self.kept = 0  # kept: of an earlier run
        self.bar: Any = None
        self.began = self.logged_at = time.perf_counter()
        self.logged = 0

    def __enter__(self) -> Tally:
        with contextlib.suppress(Exception):  # stderr is closed or None
            if self.enabled and has_bars():
                self.bar = bar(self.name, self.total)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            with contextlib.suppress(Exception):
                self.bar.close()

    def count(self, *, failed: bool = False, kept: bool = False) -> None:
        """One fit more."""
        self.done, self.failed, self.kept = self.done + 1, self.failed + failed, self.kept + kept
        if self.enabled:
            with contextlib.suppress(Exception):  # nobody reads any longer
                self._show()

    def say(self, text: str) -> None:
        """A line for the user, which a bar must not run into."""
        if not self.enabled:
            return
        if self.bar is None:
            tell(text)
            return
        with contextlib.suppress(Exception):
            self.bar.write(text, file=sys.stderr)

    def _show(self) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(self._state(), refresh=False)
            self.bar.update(1)
            return
        now = time.perf_counter()
        step = max(1.0, LOG_SHARE * self.total) if self.total else float("inf")
        if self.done == self.total or self.done - self.logged >= step or now - self.logged_at >= LOG_SECONDS:
            of_all, when = "", ""
            if self.total:
                new = (self.done - self.kept) / max(self.total - self.kept, 1)
                share = 1.0 if self.done == self.total else new
                of_all, when = f"/{self.total}", f", {time_left(now - self.began, share)}"
            tell(f"{self.name}: {self.done}{of_all} done{self._state()}{when}")
            self.logged, self.logged_at = self.done, now

    def _state(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{failed}, {self.kept} from before" if self.kept else failed
