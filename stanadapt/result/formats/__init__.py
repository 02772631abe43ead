"""Draws as other programs have them: tables, and the files and fits of CmdStan."""
