//go:build cgo && lmdb

/* store.c: opens and closes a folder; statistics.
 *
 * LMDB allows only one open of a folder per process, so further opens of the same folder share
 * the store of the first.
 */
#define _GNU_SOURCE /* renameat2 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"

enum {
	READERS_MAX = 1022,    /* slots of LMDB's reader table */
	FIRST_MAP = 16 << 20,  /* bytes */
	FLUSH_MS = 10,         /* default of options.flush_ms */
	FLUSH_UNIT_MS = 30000, /* the same for a unit */
	SLICE_NODES = 1 << 16  /* default of options.slice_nodes */
};
/* Format 2 adds checksums. A store of format 1 keeps its format, so that older versions can read
 * it. */
#define FORMAT_PREFIX "perigee nodedb "
#define FORMAT FORMAT_PREFIX "2"
#define FORMAT_1 FORMAT_PREFIX "1"

const char *ndb_format(void) { return FORMAT; }

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static ndb_store *open_stores;

static int is_format(const MDB_val *value, const char *format) {
	return value->mv_size == strlen(format) && memcmp(value->mv_data, format, value->mv_size) == 0;
}

/* Refuses to open a unit as another store, and the reverse. */
static int check_unit(ndb_store *store, MDB_txn *txn) {
	ndb_unit_record record;
	int found = ndb_unit_read(store, txn, &record);
	if (found < 0) return found;
	store->unit_folder = found == NDB_OK;
	if (store->unit_folder) ndb_unit_set_clock(store, record.clock);
	if (store->unit_folder && !store->options.unit && !store->options.read_only)
		return ndb_fail(NDB_E_ARGUMENT,
		    "%s is the state of a pipeline, which only the pipeline may change: open it read-only",
		    store->folder);
	if (!store->unit_folder && store->options.unit)
		return ndb_fail(NDB_E_ARGUMENT,
		    "%s is a node database of its own: choose another folder for the state of the pipeline",
		    store->folder);
	return NDB_OK;
}

/* Opens the sub-databases; create: makes them in a new file. */
static int open_databases(ndb_store *store, int create) {
	static const char *const names[] = {"nodes", "expiry", "meta"};
	MDB_dbi *handles[] = {&store->nodes, &store->expiry, &store->meta};
	MDB_txn *txn;
	MDB_val key = {6, "format"}, value = {sizeof FORMAT - 1, FORMAT};
	int rc;
	/* safe to remap: no snapshot is open yet */
	while ((rc = mdb_txn_begin(store->env, NULL, create ? 0 : MDB_RDONLY, &txn)) == MDB_MAP_RESIZED)
		if ((rc = mdb_env_set_mapsize(store->env, 0)) != 0) break;
	if (rc) return ndb_lmdb_error(rc, "open the store");
	for (int i = 0; i < 3 && rc == 0; i++)
		rc = mdb_dbi_open(txn, names[i], create ? MDB_CREATE : 0, handles[i]);
	if (rc == 0)
		rc = create ? mdb_put(txn, store->meta, &key, &value, 0)
		            : mdb_get(txn, store->meta, &key, &value);
	if (rc == 0 && is_format(&value, FORMAT)) {
		store->sums = 1;
	} else if (rc == 0 && !is_format(&value, FORMAT_1)) {
		int newer = value.mv_size > sizeof FORMAT_PREFIX - 1 &&
		            memcmp(value.mv_data, FORMAT_PREFIX, sizeof FORMAT_PREFIX - 1) == 0;
		int error = ndb_fail(newer ? NDB_E_NEWER : NDB_E_CORRUPT,
		    "%s: the format is \"%.*s\"; this version reads \"%s\" and \"%s\"", store->folder,
		    value.mv_size > 40 ? 40 : (int)value.mv_size, (const char *)value.mv_data, FORMAT_1,
		    FORMAT);
		mdb_txn_abort(txn);
		return error;
	}
	int error = NDB_OK;
	if (rc == 0 && create && store->options.unit)
		rc = ndb_unit_write(store, txn, (ndb_unit_record){.applied = 0});
	if (rc == 0 && !create) error = check_unit(store, txn);
	if (rc == 0 && error == NDB_OK) rc = mdb_txn_commit(txn);
	else mdb_txn_abort(txn);
	if (error < 0) return error;
	if (rc == MDB_NOTFOUND)
		return ndb_fail(NDB_E_CORRUPT, "%s does not contain a node database", store->folder);
	return rc ? ndb_lmdb_error(rc, "open the store") : NDB_OK;
}

static int sync_folder(const char *path) {
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == EACCES)
		return NDB_OK; /* a folder that this process cannot read cannot be synced */
	if (fd < 0) return ndb_fail(NDB_E_DISK, "open the folder %s: %s", path, strerror(errno));
	int rc = fsync(fd);
	int error = NDB_OK;
	if (rc && errno != EINVAL)
		error = ndb_fail(NDB_E_DISK, "sync the folder %s: %s", path, strerror(errno));
	close(fd);
	return error;
}

int ndb_sync_names(const char *folder) {
	char parent[4200];
	snprintf(parent, sizeof parent, "%s/..", folder);
	int error = sync_folder(folder);
	return error < 0 ? error : sync_folder(parent);
}

/* Refuses a link in place of LMDB's lock file, which would make LMDB write to another file. The
 * data file may be a link to another disk. */
static int refuse_link(const char *path) {
	struct stat about;
	if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode))
		return ndb_fail(
		    NDB_E_DISK, "open %s: it is a symbolic link: replace it by the file itself", path);
	return NDB_OK;
}

static int open_file(ndb_store *store, const char *path, unsigned flags, size_t map_size) {
	int rc = mdb_env_create(&store->env);
	if (rc == 0) rc = lmdb_guard(store->env);
	if (rc == 0 && map_size) rc = mdb_env_set_mapsize(store->env, map_size);
	if (rc == 0) rc = mdb_env_set_maxdbs(store->env, 4);
	if (rc == 0) rc = mdb_env_set_maxreaders(store->env, READERS_MAX);
	if (rc == 0)
		rc = mdb_env_open(
		    store->env, path, flags | MDB_NOTLS | (store->options.no_sync ? MDB_NOSYNC : 0), 0666);
	if (rc == 0) return NDB_OK;
	char doing[4200];
	snprintf(doing, sizeof doing, "open %s", path);
	return ndb_lmdb_error(rc, doing);
}

int ndb_find_file(const char *file) {
	struct stat about;
	if (stat(file, &about) == 0) return about.st_size > 0 ? NDB_OK : NDB_NONE;
	return errno == ENOENT ? NDB_NONE : ndb_fail(NDB_E_DISK, "stat %s: %s", file, strerror(errno));
}

int ndb_publish_file(const char *part, const char *file) {
	struct stat about;
	if (renameat2(AT_FDCWD, part, AT_FDCWD, file, RENAME_NOREPLACE) == 0) return NDB_OK;
	/* The target is an empty file, or the file system cannot rename without replacing. */
	int found = lstat(file, &about) == 0;
	int data = found && !(S_ISREG(about.st_mode) && about.st_size == 0);
	if (data) errno = EEXIST;
	else if ((found || errno == ENOENT) && rename(part, file) == 0) return NDB_OK;
	return ndb_fail(NDB_E_DISK, "rename %s to %s: %s", part, file, strerror(errno));
}

/* Creates the file under a temporary name, since LMDB cannot open a file that a power cut or a full
 * disk has left incomplete. */
static int create_file(ndb_store *store, const char *file) {
	char part[4200];
	snprintf(part, sizeof part, "%s/data.new", store->folder);
	if (unlink(part) != 0 && errno != ENOENT)
		return ndb_fail(NDB_E_DISK, "remove %s: %s", part, strerror(errno));
	int error = open_file(store, part, MDB_NOSUBDIR | MDB_NOLOCK, FIRST_MAP);
	if (error == NDB_OK) error = open_databases(store, 1);
	if (store->env) lmdb_close(store->env);
	store->env = NULL;
	if (error == NDB_OK) error = ndb_publish_file(part, file);
	if (error < 0) unlink(part);
	return error;
}

/* Checks the meta pages before LMDB reads them, which trusts them. */
static int check_meta(const char *file) {
	char why[120], doing[4300];
	int rc = lmdb_check_meta(file, why, sizeof why);
	if (rc == 0) return NDB_OK;
	if (rc == MDB_CORRUPTED)
		return ndb_fail(NDB_E_CORRUPT, "%s is damaged: %s; restore a backup", file, why);
	snprintf(doing, sizeof doing, "open %s", file);
	return ndb_lmdb_error(rc, doing);
}

/* Allocates all blocks of lock.mdb: LMDB writes to its mapping, where a full disk would kill the
 * process. */
static int reserve_lock_file(ndb_store *store) {
	char path[4300];
	snprintf(path, sizeof path, "%s/lock.mdb", store->folder);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	/* on a read-only file system LMDB needs no lock file, since no process can write */
	if (fd < 0 && store->options.read_only && errno == EROFS) return NDB_OK;
	if (fd < 0 && store->options.read_only && (errno == EACCES || errno == EPERM))
		return ndb_fail(NDB_E_DISK,
		    "open %s: %s; readers register in this file: give this user write access to it and its folder, or read a restored backup",
		    path, strerror(errno));
	if (fd < 0) return ndb_fail(NDB_E_DISK, "open %s: %s", path, strerror(errno));
	off_t size = (off_t)lmdb_lock_file_size(READERS_MAX);
	struct stat about;
	int error = NDB_OK;
	int whole =
	    fstat(fd, &about) == 0 && about.st_size >= size && (off_t)about.st_blocks * 512 >= size;
	if (!whole && fallocate(fd, 0, 0, size) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
		error = ndb_fail(NDB_E_DISK, "allocate %s: %s", path, strerror(errno));
	close(fd);
	return error;
}

static int open_environment(ndb_store *store) {
	char file[4200];
	snprintf(file, sizeof file, "%s/data.mdb", store->folder);
	int error = ndb_find_file(file);
	if (error == NDB_NONE) {
		if (store->options.read_only)
			return ndb_fail(NDB_E_ARGUMENT, "%s does not contain a node database", store->folder);
		if ((error = ndb_shared_begin_creation(store->shared)) < 0) return error;
		error = ndb_find_file(file); /* another process may have created it meanwhile */
		if (error == NDB_NONE) error = create_file(store, file);
		ndb_shared_end_creation(store->shared);
	}
	char lock[4200];
	snprintf(lock, sizeof lock, "%s/lock.mdb", store->folder);
	if (error == NDB_OK) error = refuse_link(lock);
	if (error == NDB_OK) error = check_meta(file);
	if (error == NDB_OK) error = reserve_lock_file(store);
	if (error == NDB_OK)
		error = open_file(store, store->folder, store->options.read_only ? MDB_RDONLY : 0, 0);
	if (error < 0) return error;
	if (mdb_env_get_maxkeysize(store->env) < NDB_KEY_MAX + 8)
		return ndb_fail(NDB_E_CORRUPT, "%s: its pages only hold keys of up to %d bytes",
		    store->folder, mdb_env_get_maxkeysize(store->env));
	mdb_reader_check(store->env, NULL);
	store->last_commit = lmdb_last_commit(store->env);
	if (!store->last_commit) store->last_commit = &store->only_commit;
	return open_databases(store, 0);
}

static void init_condition(pthread_cond_t *c) {
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(c, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static void free_store(ndb_store *store) {
	ndb_releaser_stop(store);
	ndb_unit_free(store);
	ndb_snapshot_unref(store->base);
	ndb_layer_clear(&store->frozen);
	ndb_layer_clear(&store->pending);
	store->transactions = 0;
	ndb_store_trim_log(store);
	free(store->log);
	if (store->env) lmdb_close(store->env);
	ndb_shared_close(store->shared);
	free(store->map);
	pthread_mutex_destroy(&store->lock);
	pthread_mutex_destroy(&store->map_lock);
	pthread_cond_destroy(&store->work);
	pthread_cond_destroy(&store->done);
	pthread_cond_destroy(&store->held);
	free(store->folder);
	free(store);
}

static void set_defaults(ndb_options *o) {
	if (o->flush_ms <= 0) o->flush_ms = o->unit ? FLUSH_UNIT_MS : FLUSH_MS;
	if (!o->slice_nodes) o->slice_nodes = SLICE_NODES;
	if (!o->transaction_bytes) o->transaction_bytes = 256u << 20;
	if (!o->pending_bytes) o->pending_bytes = 256u << 20;
	o->read_only = o->read_only != 0, o->no_sync = o->no_sync != 0, o->verify = o->verify != 0;
}

static int new_store(
    const char *folder, const ndb_options *options, const struct stat *about, ndb_store **out) {
	ndb_store *store = calloc(1, sizeof *store);
	if (!store) return ndb_fail(NDB_E_MEMORY, "out of memory");
	store->options = *options;
	set_defaults(&store->options);
	store->device = about->st_dev, store->inode = about->st_ino;
	store->opens = 1;
	pthread_mutex_init(&store->lock, NULL);
	pthread_mutex_init(&store->map_lock, NULL);
	init_condition(&store->work);
	init_condition(&store->done);
	init_condition(&store->held);
	ndb_layer_init(&store->frozen);
	ndb_layer_init(&store->pending);
	store->folder = strdup(folder);
	store->map = calloc(1, sizeof *store->map);
	int error = store->folder && store->map ? NDB_OK : ndb_fail(NDB_E_MEMORY, "out of memory");
	if (error == NDB_OK) error = ndb_shared_open(folder, &store->shared);
	/* a read-only store works without locks if this process cannot write the folder */
	if (error < 0 && options->read_only) error = NDB_OK;
	if (error == NDB_OK && options->unit) error = ndb_shared_own_unit(store->shared);
	if (error == NDB_OK) {
		atomic_init(&store->map->refs, 1);
		error = open_environment(store);
	}
	if (error == NDB_OK && !options->read_only && !options->no_sync) error = ndb_sync_names(folder);
	if (error == NDB_OK) error = ndb_snapshot_open(store, &store->base);
	if (error == NDB_OK)
		store->sweeps = store->base->expiring != 0, store->only_commit = store->base->number;
	store->lease = store->options.unit; /* the releaser leaves a unit its base */
	if (error == NDB_OK) error = ndb_releaser_start(store);
	if (error == NDB_OK && store->options.unit) {
		error = ndb_unit_start(store);
	} else if (error == NDB_OK && store->sweeps && !store->options.read_only) {
		pthread_mutex_lock(&store->lock);
		error = ndb_committer_start(store);
		pthread_mutex_unlock(&store->lock);
	}
	if (error < 0) {
		free_store(store);
		return error;
	}
	*out = store;
	return NDB_OK;
}

/* Checks the options of a further open, since all opens of a folder in this process share a
 * store. */
static int compare_options(const ndb_store *store, const ndb_options *wanted) {
	ndb_options o = *wanted;
	if (o.unit)
		return ndb_fail(
		    NDB_E_IN_USE, "%s is already open in this process: close it first", store->folder);
	if (store->unit && !o.read_only)
		return ndb_fail(NDB_E_ARGUMENT,
		    "%s is the state of a pipeline, which only the pipeline may change: open it read-only",
		    store->folder);
	/* sessions of this open only read, so its options for writing do not matter */
	if (o.read_only == NDB_READ_ONLY_SESSIONS && !store->options.read_only) return NDB_OK;
	set_defaults(&o);
	const struct {
		const char *name;
		uint64_t has, wants;
	} options[] = {
	    {"read_only", store->options.read_only != 0, o.read_only != 0},
	    {"flush_ms", (uint64_t)store->options.flush_ms, (uint64_t)o.flush_ms},
	    {"transaction_bytes", store->options.transaction_bytes, o.transaction_bytes},
	    {"pending_bytes", store->options.pending_bytes, o.pending_bytes},
	    {"verify", (uint64_t)store->options.verify, (uint64_t)o.verify},
	    {"no_sync", (uint64_t)store->options.no_sync, (uint64_t)o.no_sync},
	};
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		if (options[i].has != options[i].wants)
			return ndb_fail(NDB_E_ARGUMENT,
			    "%s is already open in this process with %s %llu, not %llu: use the same options, or close it first",
			    store->folder, options[i].name, (unsigned long long)options[i].has,
			    (unsigned long long)options[i].wants);
	return NDB_OK;
}

int ndb_open(const char *folder, const ndb_options *options, ndb_store **out) {
	static const ndb_options defaults;
	struct stat about;
	int error = NDB_OK;
	*out = NULL;
	if (!options) options = &defaults;
	if (!*folder || strlen(folder) > 4000)
		return ndb_fail(NDB_E_ARGUMENT, "invalid folder name \"%.60s\"", folder);
	int refused = !options->read_only && mkdir(folder, 0777) != 0 ? errno : 0;
	if (stat(folder, &about) != 0) {
		int full = refused && refused != ENOENT && refused != ENOTDIR && errno == ENOENT;
		return ndb_fail(full ? NDB_E_DISK : NDB_E_ARGUMENT, "%s %s: %s",
		    full ? "create the folder" : "open", folder, strerror(full ? refused : errno));
	}
	if (!S_ISDIR(about.st_mode)) return ndb_fail(NDB_E_ARGUMENT, "open %s: not a folder", folder);
	pthread_mutex_lock(&opening);
	ndb_store *store = open_stores;
	/* Seed the hash before the first session, whose tables depend on it. */
	static int seeded;
	if (!seeded)
		seeded = getrandom(&ndb_hash_seed, sizeof ndb_hash_seed, GRND_NONBLOCK) ==
		             sizeof ndb_hash_seed ||
		         1;
	while (store && (store->device != about.st_dev || store->inode != about.st_ino))
		store = store->next;
	if (store) {
		if ((error = compare_options(store, options)) == NDB_OK) store->opens++;
	} else if ((error = new_store(folder, options, &about, &store)) == NDB_OK) {
		store->next = open_stores;
		open_stores = store;
	}
	pthread_mutex_unlock(&opening);
	if (error == NDB_OK) *out = store;
	return error;
}

int ndb_close(ndb_store *store) {
	if (!store) return NDB_OK;
	int error = NDB_OK;
	pthread_mutex_lock(&opening);
	if (store->opens > 1) {
		store->opens--;
		pthread_mutex_unlock(&opening);
		return NDB_OK;
	}
	ndb_unit_retire(store);
	pthread_mutex_lock(&store->lock);
	if (store->sessions)
		error = ndb_fail(NDB_E_ARGUMENT, "%s has open sessions: close them first", store->folder);
	pthread_mutex_unlock(&store->lock);
	/* After a failed sync the store stays open: the caller may free disk space and close again. */
	if (error == NDB_OK && (error = ndb_sync(store)) == NDB_OK) {
		ndb_committer_stop(store);
		ndb_store **at = &open_stores;
		while (*at != store) at = &(*at)->next;
		*at = store->next;
		free_store(store);
	}
	pthread_mutex_unlock(&opening);
	return error;
}

static int count_reader(const char *line, void *count) {
	/* "pid thread number"; the number is "-" while the slot is not reading */
	size_t len = strlen(line);
	while (len && (line[len - 1] == '\n' || line[len - 1] == ' ')) len--;
	if (len && line[len - 1] >= '0' && line[len - 1] <= '9') ++*(uint32_t *)count;
	return 0;
}

int ndb_stat(ndb_store *store, ndb_statistics *out) {
	*out = (ndb_statistics){0};
	ndb_snapshot *s;
	pthread_mutex_lock(&store->lock);
	ndb_unit_settle(store);
	int error = NDB_OK;
	if (ndb_layer_empty(&store->pending) && ndb_layer_empty(&store->frozen))
		error = ndb_store_refresh(store);
	s = ndb_snapshot_ref(store->base);
	out->pending_bytes = ndb_layer_bytes(&store->pending) + ndb_layer_bytes(&store->frozen);
	out->commits = store->commits;
	pthread_mutex_unlock(&store->lock);
	MDB_stat nodes;
	size_t free_pages;
	int rc = error == NDB_OK ? mdb_stat(s->txn, store->nodes, &nodes) : 0;
	if (rc == 0 && error == NDB_OK && (rc = lmdb_free_pages(s->txn, &free_pages)) == 0) {
		out->nodes = s->nodes, out->expiring = s->expiring, out->depth = nodes.ms_depth;
		pthread_mutex_lock(&store->map_lock);
		out->map_bytes = lmdb_map_size(store->env);
		out->used_bytes = lmdb_pages(store->env) * nodes.ms_psize;
		pthread_mutex_unlock(&store->map_lock);
		out->free_bytes = free_pages * nodes.ms_psize;
		out->used_bytes -= out->free_bytes < out->used_bytes ? out->free_bytes : out->used_bytes;
		mdb_reader_list(store->env, count_reader, &out->readers);
	}
	ndb_snapshot_unref(s);
	out->processes = store->shared ? ndb_shared_processes(store->shared) : 1;
	out->locks = store->shared ? ndb_locks_count(store->shared) : 0;
	if (error == NDB_OK && rc) error = ndb_lmdb_error(rc, "read statistics");
	return error;
}
