"""The options of filters, declared once for all tools that walk."""

from __future__ import annotations

import argparse

from pcircle.cli.arguments import NO_FILTERS, add_filters


def test_a_tool_without_filters_has_the_values_of_all_filter_options() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_filters(parser, "PATH")
    assert vars(parser.parse_args([])) == NO_FILTERS
