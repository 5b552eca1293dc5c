"""frm as users run it: compared with rm and find, and attacked."""
