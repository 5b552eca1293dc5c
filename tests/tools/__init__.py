"""Tests of the commands, one package each, like in `pcircle.tools`: they run the programs."""
