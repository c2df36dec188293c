# Makes LMDB, which trusts its file, check what it reads, so that a damaged file gives an error. The
# functions guard_* are in extend.c. build.sh counts the edits.

# An assertion that a damaged file can violate becomes an error of the call, instead of an abort.
s|^#define mdb_cassert(mc, expr).*|#define mdb_cassert(mc, expr) do { if (!(expr)) return guard_spoil((mc)->mc_txn); } while (0)|
s|^#define mdb_tassert(txn, expr).*|#define mdb_tassert(txn, expr) do { if (!(expr)) return guard_spoil(txn); } while (0)|

# Functions without a result.
/^mdb_page_dirty(/,/^}/s|^\tmdb_tassert(txn, rc == 0);|\tif (rc) guard_spoil(txn);|
/^mdb_cursor_chk(/,/^}/s|mdb_tassert(txn, rc == MDB_NOTFOUND);|mdb_eassert(txn->mt_env, rc == MDB_NOTFOUND);|
/^mdb_node_del(/,/^}/s|^\tmdb_cassert(mc, indx < numkeys);|\tif (indx >= numkeys) { guard_spoil(mc->mc_txn); return; }|
/^mdb_cursor_init(/,/^}/s|mdb_tassert(txn, mx != NULL);|mdb_eassert(txn->mt_env, mx != NULL);|

# Pages read from the file.
/^mdb_page_get(/,/^}/{
s|^\t\tp = (MDB_page \*)(env->me_map + env->me_psize \* pgno);|&\n\t\tif (guard_page(mc, p, pgno)) return guard_spoil(txn);|
s|^\t\ttxn->mt_flags .= MDB_TXN_ERROR;|\t\tguard_spoil(txn);|
}
/^mdb_page_search_root(/,/^}/s|^\t\tmc->mc_txn->mt_flags .= MDB_TXN_ERROR;|\t\tguard_spoil(mc->mc_txn);|

# The pages of a large value.
/^mdb_node_read(/,/^}/s|^\tdata->mv_data = METADATA(omp);|\tif (guard_large(mc, omp, data->mv_size)) return guard_spoil(mc->mc_txn);\n&|
/^_mdb_cursor_put(/,/^}/s|^\t\t\tovpages = omp->mp_pages;|\t\t\tif (guard_large(mc, omp, 0)) return guard_spoil(mc->mc_txn);\n&|
/^mdb_ovpage_free(/,/^}/s|^\tint rc;|&\n\tif (guard_large(mc, mp, 0)) return guard_spoil(txn);|

# The sub-databases and the neighbours of a page.
/^mdb_page_search(/,/^}/s|^\t\t\t\t\tmemcpy(&flags, ((char \*) data.mv_data + offsetof(MDB_db, md_flags)),|\t\t\t\t\tif (guard_database(mc->mc_txn, \&data)) return guard_spoil(mc->mc_txn);\n&|
/^mdb_rebalance(/,/^}/s|^\t\tmn.mc_ki\[mn.mc_top\] = .*|\t\tif (IS_LEAF(mn.mc_pg[mn.mc_top]) != IS_LEAF(mc->mc_pg[mc->mc_top])) return guard_spoil(mc->mc_txn);\n&|

# Lists of free pages.
/^mdb_page_alloc(/,/^}/s|^\t\tidl = (MDB_ID \*) data.mv_data;|\t\tif ((rc = guard_free_pages(txn, \&data)) != 0) goto fail;\n&|

# The compacting copy.
/^mdb_env_copyfd1(/,/^}/s|^\t\t\tfreecount += \*(MDB_ID \*)data.mv_data;|\t\t\tif ((rc = guard_free_pages(txn, \&data)) != 0) goto finish;\n\t\t\telse &|
/^mdb_env_cwalk(/,/^}/{
s|^\t\t\t\t\t\tif (my->mc_wlen\[toggle\] >= MDB_WBUF) {|\t\t\t\t\t\tif (guard_large(\&mc, omp, NODEDSZ(ni))) { rc = MDB_CORRUPTED; goto done; }\n&|
s|^\t\t\t\t\t\tMDB_db db;|&\n\t\t\t\t\t\tif (flags \& F_SUBDATA) { rc = MDB_CORRUPTED; goto done; } /* guard_nesting */|
s|ni->mn_flags & F_DUPDATA);|F_SUBDATA); /* for guard_nesting */|
s|^\t\t\t\tif (IS_BRANCH(mp)) {|\t\t\t\tif (IS_BRANCH(mp) \&\& mc.mc_top >= ((char *)leaf - buf) / my->mc_env->me_psize) { rc = MDB_CORRUPTED; goto done; } /* guard_depth */\n&|
}

# The meta pages: a checksum in each, and after a failed write the page as it was.
/^mdb_env_init_meta(/,/^}/s|^\tDPUTS("writing new meta page");|&\n\tguard_sum(meta);|
/^mdb_env_copyfd1(/,/^}/s|^\tmy.mc_wlen\[0\] = env->me_psize \* NUM_METAS;|\tguard_sum(mm), guard_sum(METADATA((MDB_page *)my.mc_wbuf[0]));\n&|
/^mdb_env_write_meta(/,/^}/{
s|^\tmetab.mm_txnid = mp->mm_txnid;|\tmetab = *mp; /* guard_undo */|
s|^\tmeta.mm_txnid = txn->mt_txnid;|&\n\tguard_sum_next(\&meta, env->me_metas[toggle ^ 1]);|
s|^\t\tmeta.mm_txnid = metab.mm_txnid;|\t\tmeta = metab; /* guard_undo */|
}
