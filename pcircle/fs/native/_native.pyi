INTERFACE: int

def copy_files(
    source_fd: int,
    target_fd: int,
    names: list[bytes],
    flags: int,
    creation_bits: int,
    keep: int,
    inode_flags: int,
    max_links: int,
    max_bytes: int,
    source_device: int,
    owner: int,
    group: int,
    until_ns: int,
    contents_bytes: int,
    /,
) -> tuple[bytes, bytes]: ...
def unlink_names(fd: int, names: list[bytes], directories: bool, until_ns: int, /) -> bytes: ...
