"""fchmod, fchown and fchgrp as users run them: compared with chmod, chown, setfacl; attacked."""
