/* The floor under a copy: `plain_loop SRC DST`, the same calls as plain_loop.py. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { SMALL_BYTES = 128 << 10, LIST_BYTES = 1 << 10, PATH_BYTES = 4 << 10 };
static const int SOURCE = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
static const int TARGET = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
static const int DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
static char buffer[SMALL_BYTES + 1], list[LIST_BYTES];

static void must(int ok, const char *name)
{
	if (!ok) {
		perror(name);
		exit(1);
	}
}

static void copy_file(const char *name, int source_fd, int target_fd)
{
	struct stat status;
	int fd = openat(source_fd, name, SOURCE);
	must(fd >= 0 && !fstat(fd, &status), name);
	flistxattr(fd, list, sizeof list);
	int out = openat(target_fd, name, TARGET, status.st_mode & 07777);
	must(out >= 0, name);
	if (status.st_size <= SMALL_BYTES) {
		ssize_t size = read(fd, buffer, status.st_size + 1);
		must(size <= 0 || write(out, buffer, size) == size, name);
	} else
		while (copy_file_range(fd, NULL, out, NULL, 1 << 30, 0) > 0)
			;
	struct timespec times[] = {status.st_atim, status.st_mtim};
	must(!futimens(out, times) && !close(out) && !close(fd), name);
}

static void copy_link(const char *name, int source_fd, int target_fd)
{
	struct stat status;
	char text[PATH_BYTES + 1];
	must(!fstatat(source_fd, name, &status, AT_SYMLINK_NOFOLLOW), name);
	ssize_t size = readlinkat(source_fd, name, text, PATH_BYTES);
	must(size > 0, name);
	text[size] = 0;
	struct timespec times[] = {status.st_atim, status.st_mtim};
	must(!symlinkat(text, target_fd, name), name);
	must(!utimensat(target_fd, name, times, AT_SYMLINK_NOFOLLOW), name);
}

static void copy_tree(const char *source, int source_dir, const char *target, int target_dir)
{
	struct stat status;
	int source_fd = openat(source_dir, source, DIRECTORY);
	must(source_fd >= 0 && !fstat(source_fd, &status), source);
	flistxattr(source_fd, list, sizeof list);
	must(!mkdirat(target_dir, target, 0700), target);
	int target_fd = openat(target_dir, target, DIRECTORY);
	must(target_fd >= 0, target);
	DIR *entries = fdopendir(dup(source_fd));
	must(entries != NULL, source);
	char **below = NULL;
	size_t count = 0;
	for (struct dirent *entry; (entry = readdir(entries));) {
		const char *name = entry->d_name;
		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		if (entry->d_type == DT_DIR) {
			below = realloc(below, (count + 1) * sizeof *below);
			must(below && (below[count++] = strdup(name)), name);
		} else if (entry->d_type == DT_LNK)
			copy_link(name, source_fd, target_fd);
		else
			copy_file(name, source_fd, target_fd);
	}
	closedir(entries);
	for (size_t i = 0; i < count; i++) {
		copy_tree(below[i], source_fd, below[i], target_fd);
		free(below[i]);
	}
	free(below);
	struct timespec times[] = {status.st_atim, status.st_mtim};
	must(!fchmod(target_fd, status.st_mode & 07777) && !futimens(target_fd, times), target);
	close(target_fd);
	close(source_fd);
}

int main(int count, char **words)
{
	must(count == 3, "usage: plain_loop SRC DST");
	copy_tree(words[1], AT_FDCWD, words[2], AT_FDCWD);
	return 0;
}
