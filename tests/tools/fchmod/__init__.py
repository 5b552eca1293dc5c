"""fchmod, fchown and fchgrp as their users run them: judged by chmod, chown, setfacl; attacked."""
