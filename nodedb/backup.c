//go:build cgo && lmdb

/* backup.c: consistent copies. A copy is compact and reads one snapshot, while others write. Its
 * LMDB file is either complete or absent.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"

static int failed(const char *doing, const char *file) {
	return ndb_fail(NDB_E_DISK, "%s %s: %s", doing, file, strerror(errno));
}

/* Writes folder/data.mdb under a temporary name first. */
static int copy_environment(MDB_env *env, const char *folder, int replace) {
	char part[4200], whole[4200];
	snprintf(part, sizeof part, "%s/data.part", folder);
	snprintf(whole, sizeof whole, "%s/data.mdb", folder);
	int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (fd < 0) return failed("create", part);
	int rc = mdb_env_copyfd2(env, fd, MDB_CP_COMPACT);
	int error = rc ? ndb_lmdb_error(rc, "copy the store") : NDB_OK;
	if (!error && fsync(fd) != 0) error = failed("sync", part);
	if (close(fd) != 0 && !error) error = failed("close", part);
	if (!error && !replace) error = ndb_publish_file(part, whole);
	else if (!error && rename(part, whole) != 0) error = failed("rename", part);
	if (!error) error = ndb_sync_names(folder);
	if (error) unlink(part);
	return error;
}

int ndb_backup(ndb_store *store, const char *folder) {
	char file[4200];
	if (!*folder || strlen(folder) > 4000)
		return ndb_fail(NDB_E_ARGUMENT, "invalid folder name \"%.60s\"", folder);
	if (!store->options.read_only) {
		int error = ndb_sync(store);
		if (error < 0) return error;
	}
	int made = mkdir(folder, 0777) == 0;
	if (!made && errno != EEXIST) return failed("create", folder);
	snprintf(file, sizeof file, "%s/data.mdb", folder);
	int error = ndb_find_file(file);
	if (error == NDB_OK)
		return ndb_fail(NDB_E_ARGUMENT,
		    "%s already contains a node database: back up into a new folder", folder);
	if (error < 0) return error;
	ndb_snapshot *keeps; /* keeps the file's current map, since the file may grow meanwhile */
	error = ndb_snapshot_open(store, &keeps);
	if (error == NDB_OK) {
		error = copy_environment(store->env, folder, 0);
		ndb_snapshot_unref(keeps);
	}
	if (error && made) rmdir(folder);
	return error;
}

/* No process may have the folder open, since it would continue to use the old file. */
int ndb_compact(const char *folder) {
	ndb_store *store;
	ndb_options options = {0};
	int error = ndb_open(folder, &options, &store);
	if (error < 0) return error;
	char lock[4200];
	snprintf(lock, sizeof lock, "%s/lock.mdb", folder);
	if (store->opens > 1 || !lmdb_lock_out(store->env))
		error = ndb_fail(
		    NDB_E_ARGUMENT, "%s is open in this or another process: close it first", folder);
	if (error == NDB_OK) error = copy_environment(store->env, folder, 1);
	int closed = ndb_close(store);
	return error ? error : closed;
}
