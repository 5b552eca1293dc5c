"""frm as its users run it: judged by rm and find, and attacked."""
