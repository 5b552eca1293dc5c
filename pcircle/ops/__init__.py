"""Operations on entries and trees, as a library without command-line options or a terminal."""
