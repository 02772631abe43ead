"""`make release`: checks that a release is ready, builds it, and tries what was built. It uploads nothing.

    python tests/release.py [FOLDER]     FOLDER is for the files, by default dist

It checks that the version, the changelog and the citation agree and that everything is committed. It builds
sdist and wheel, and twine checks what the package index will show of them. It installs the wheel in a new
environment, without the checkout, and runs the demo there. On Linux on x86-64 it then builds wheels that
bring the machine code of all methods (compiled_wheels.py), for each version of Python that it finds, some
minutes each. At the end it prints the commands that publish the release; to run them is left to you.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import compiled_wheels
from compiled_wheels import environment, run

ROOT = Path(__file__).parents[1]
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3.14"]  # those of pyproject.toml
DEMO = "models/eight_schools/eight_schools"
VERSION = re.compile(r"\d+\.\d+\.\d+")
HEADING = re.compile(r"^## (.+?) - (.+)$", re.MULTILINE)


def version_of(root: Path) -> str:
    """What `__version__` is in the package, which is not imported."""
    tree = ast.parse((root / "stanadapt" / "version.py").read_text(encoding="utf-8"))
    return next(
        str(ast.literal_eval(node.value))
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    )


def faults(root: Path, changed: str) -> list[str]:
    """What keeps a checkout from being released, a sentence each; `changed` is what git status prints."""
    version, found = version_of(root), []
    if not VERSION.fullmatch(version):
        found.append(f"__version__ is {version}, which is not of the form X.Y.Z.")
    first = HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if first is None or first[1] != version:
        found.append(f"CHANGELOG.md begins with {first[1] if first else 'no version'}, not with {version}.")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", first[2]):
        found.append(f"CHANGELOG.md has no date for {version}: its heading ends in {first[2]!r}.")
    elif f"date-released: {first[2]}" not in (root / "CITATION.cff").read_text(encoding="utf-8"):
        found.append(f"CITATION.cff does not have the date {first[2]} of CHANGELOG.md.")
    if f"version: {version}\n" not in (root / "CITATION.cff").read_text(encoding="utf-8"):
        found.append(f"CITATION.cff does not have the version {version}.")
    if changed.strip():
        found.append(f"The working tree has changes that are not committed:\n{changed.rstrip()}")
    return found


def build(out: Path) -> Path:
    """Build sdist and wheel into `out`, have twine check them, and return the wheel."""
    run([sys.executable, "-m", "build", "--outdir", out, ROOT])
    files = sorted(out.iterdir())
    run([sys.executable, "-m", "twine", "check", "--strict", *files])
    return next(path for path in files if path.suffix == ".whl")


def try_wheel(wheel: Path) -> None:
    """Run the demo with the wheel alone: in a new environment, and in a folder that has only the model."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = environment(folder / "venv", sys.executable, wheel).with_name("stanadapt")
        shutil.copytree(ROOT / Path(DEMO).parent, folder / Path(DEMO).parent)
        fit = [f"{DEMO}.stan", "--data", f"{DEMO}.json", "--seed", "1", "--no-progress", "--out", "fit.nc"]
        run([command, "sample", *fit], folder)
        run([command, "report", "fit.nc", "--out", "fit.html"], folder)


def main(out: Path) -> None:
    git = ["git", "-C", str(ROOT), "status", "--porcelain"]
    found = faults(ROOT, subprocess.run(git, check=True, capture_output=True, text=True).stdout)
    if found:
        sys.exit("This checkout is not ready for a release.\n" + "\n".join(f"- {fault}" for fault in found))
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty: older files would be checked, and uploaded, with the new ones.")
    out.mkdir(parents=True, exist_ok=True)
    wheel = build(out)
    try_wheel(wheel)
    if compiled_wheels.can_build():
        missing = [python for python in PYTHONS if not shutil.which(python)]
        compiled_wheels.main(wheel, [python for python in PYTHONS if python not in missing])
        for python in missing:
            print(f"{python} is not here: it gets no wheel with machine code, and compiles at first runs.")
    version = version_of(ROOT)
    print(f"\nstanadapt {version} is built and tried. To publish it:\n")
    print(f"    git tag v{version} && git push origin main v{version}")
    print(f"    {sys.executable} -m twine upload {out}/*")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
