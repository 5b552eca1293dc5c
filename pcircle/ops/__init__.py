"""Operations on entries and trees, without options or a terminal: a library for programs."""
