"""Tests of the commands, one package each, as in `pcircle.tools`: they run the programs."""
