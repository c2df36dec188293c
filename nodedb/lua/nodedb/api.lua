-- The reference of the module nodedb. A test prints docs/reference/nodedb-lua.md from it, and compares
-- it with the module's functions and methods.
return {
  {
    title = "Opening a store",
    text = [[
A Lua state has one store open at a time. Call `open` first. A script that never calls it uses the folder in the
environment variable `NODEDB_FOLDER`; if that is not set, it has no store and can only use trees in memory. In
Perigee's engine the store is already open: `open` raises an error, and the other functions of this section are
absent.]],
    {"nodedb.open(folder [, options])", [[Opens the store in a folder, and creates it if it is missing. The options:
`read_only`; `flush_ms` (time in ms until changes outside transactions are durable and visible to other processes;
default 10); `no_sync` (a machine crash may lose everything since the last sync); `transaction_bytes` and
`pending_bytes` (memory limits for the changes of one transaction, and for changes not yet committed; default 256 MiB
each).]]},
    {"nodedb.close()", [[Commits pending changes and closes the store. It releases all locks, drops trees in memory and
ends open iterations. Nodes stay valid: they are paths. When a Lua state ends, it closes its store.]]},
    {"nodedb.sync()", [[Waits until all earlier changes are durable. In a transaction it raises `NDB_E_LEVEL`, as
`close` does.]]},
    {"nodedb.stat()", [[Returns a table: `nodes`, `map_bytes`, `used_bytes`, `free_bytes`, `pending_bytes`, `commits`,
`expiring`, `readers`, `locks`, `depth`, `processes`.]]},
    {"nodedb.backup(folder)", [[Writes a consistent, compact copy of the store into a new folder. Other sessions may
read and write meanwhile.]]},
    {"nodedb.check()", [[Reads the whole store. Returns the number of faults, and their descriptions as text, one per
line.]]},
    {"nodedb.compact(folder)", "Compacts the store in a folder that no process has open."},
  },
  {
    title = "Nodes",
    text = [[
A node is a path: a name and up to 31 subscripts. Names that begin with `^` are stored and shared by all processes;
other names are trees in the memory of this Lua state. Creating a node does not read or write the store.

    local person = nodedb.node("^person", 3)
    person.name.first.__ = "Ada"          -- set
    print(person.name.first.__)           --> Ada
    person.visits:incr()                  -- a method
    print(person["e-mail"].__)            --> nil

A path is one object: `person.name == person.name`, also as the key of a table, while the script holds a reference to
it. Using a path again does not call C; the collector frees unused nodes. Nodes are immutable and always stay valid,
also those that an iteration returns.

Every field of a node is a subnode, except fields that begin with two underscores: `__` is the value, and `__get`,
`__set` and so on are the methods. `node:get()` and `node:__get()` are the same; the names of methods can be
subscripts too: `node.get.__ = 1`. For a subnode whose name begins with two underscores, write `node("__name")`.
Only `.__` can be assigned: `node.x = 5` raises an error.

**Subscripts** are strings and numbers. A string that spells a number as M does (`"3"`, `".5"`, but not `"3.0"`,
`"0.5"`) is that number, so `node[3]`, `node[3.0]` and `node["3"]` are the same node. Numbers come first, by value, then
strings, by bytes; `""` is a subscript and precedes all others. Iterations return numbers as numbers. They return
integers beyond 2^53 as strings of their digits, or as integers in Lua 5.3 and later.

**Values** are strings, numbers and booleans, and keep their type. Numbers have up to 18 significant digits. An
infinite number or NaN raises an error. Lua 5.3 and later treat equal integers and floats as the same table key, so
`node[2^62]` is the node of the integer; on LuaJIT it is that of the float, `4611686018427388000`.

Do not use nodes in a finalizer (`__gc`), which can run during another use.]],
    {"nodedb.node(name [, subscripts...])", [[Returns the node with a name and subscripts, given one by one or as
tables. `nodedb.node(node, subscripts...)` returns a subnode of a node, as does the call `node(subscripts...)`.]]},
    {"nodedb.isnode(value)", "Returns whether a value is a node of this module."},
    {"nodedb.inherit(constructor [, metatable])", [[Returns a constructor of nodes with additional methods, the table of
those methods, and the methods that they override. `metatable.__index` is that table (default: `metatable` itself). The
nodes also get its metamethods, such as `__concat` and `__tostring`, except `__index` and `__newindex`. Reading and
assigning `.__` calls the methods `get` and `set`. Subnodes are of the same kind. A field of the table hides the subnode
of that name; write `node("name")` for it.]]},
    {"node.__", "The value, or `nil`. Assign to it to set the value; assign `nil` to delete it."},
    {"node + number, node - number", "Increments the node by the number, and returns the node."},
    {"tostring(node)", "Returns the node in M's notation: `^person(3,\"name\")`."},
    {"pairs(node)", [[Same as `node:pairs()`, in Lua 5.2 and later, which have the metamethod `__pairs`. `ipairs(node)`
raises an error, since a node has endless subscripts.]]},
  },
  {
    title = "Methods: values",
    {"node:get([default])", "Returns the value, or `default` if there is none."},
    {"node:set(value)", "Sets the value. `nil` deletes it."},
    {"node:set_new(value)", "Sets the value unless there is one. Returns whether it did."},
    {"node:compare_and_set(expected, value)", [[Sets the value if the current one equals `expected` (`nil`: if there
is none). Returns whether it did.]]},
    {"node:incr([by])", [[Adds a number (default 1) and returns the sum. The arithmetic is exact in decimal, to 18
digits: three times 0.1 is 0.3. A missing value counts as 0, text as its numeric prefix.]]},
    {"node:kill()", "Deletes the node and its descendants."},
    {"node:data()", "Returns 0 for neither value nor subnodes, 1 for a value, 10 for subnodes, 11 for both."},
    {"node:has_value()", "Returns whether there is a value."},
    {"node:has_tree()", "Returns whether there are subnodes."},
    {"node:count()", "Returns the number of values in the subtree, including the node's own."},
    {"node:merge(from)", [[Copies the value and all descendants of another node. Nodes that `from` does not have stay
unchanged. Copying a node into its own subtree, or its subtree into it, raises an error.]]},
    {"node:expire([seconds])", [[Makes the value expire after a time, unless it is set again before; 0 means now.
Without an argument it removes the expiry. Returns whether there is a value. Expiry follows the machine's clock. In a
transaction, nodes expire by the time at which it began.]]},
    {"node:expire_at([time])", [[Same for a time in seconds since 1970, as `os.time()` returns it; a time in the past
means now.]]},
    {"node:expire_tree([seconds])", [[Same as `expire` for all nodes of the subtree that have a value now. Nodes set
later do not expire.]]},
    {"node:kill_range([from [, to]])", [[Deletes the subnodes between two subscripts, both included, with their
descendants. `nil`: no bound. The node keeps its own value.]]},
    {"node:ttl()", "Returns the seconds until the value expires, or `nil` if it does not expire or there is none."},
  },
  {
    title = "Methods: iteration",
    text = [[
The argument of an iteration is `true` for the reverse order, or a table of options: `reverse`, `limit`, `from` and
`to` (inclusive bounds, in the direction of iteration). Iterations see changes that this script makes meanwhile, as M's
`$order` does, and may continue after the transaction in which they began.

    for day, value in stats:values {from = 20240101, to = 20241231} do … end]],
    {"node:subscripts([reverse | options])", "Iterates over the subscripts of the next level."},
    {"node:values([reverse | options])", "Iterates over subscripts and values (`nil` for a subnode without one)."},
    {"node:pairs([reverse | options])", [[Iterates over subnodes, values and subscripts: `for child, value, subscript
in node:pairs()`.]]},
    {"node:walk([reverse | options])", [[Iterates over all nodes of the subtree that have a value, and their values.
Here `from` and `to` are subscripts of subnodes, or nodes below this one, and include their descendants.]]},
  },
  {
    title = "Methods: the path",
    {"node:name()", "Returns the last subscript, or the name of a node without subscripts."},
    {"node:varname()", "Returns the name, including its `^`."},
    {"node:depth()", "Returns the number of subscripts."},
    {"node:subsarray()", "Returns a table of the subscripts."},
    {"node:ismutable()", "Returns `false`: nodes are immutable."},
  },
  {
    title = "Methods: trees as tables",
    text = [[
A tree is a table. The field `__` is the value of a node that has subnodes:

    person:settree {__ = "Ada", looks = {__ = "fine", eyes = "blue"}, age = nodedb.DELETE}]],
    {"node:settree(table [, filter])", [[Sets the values in a table, and leaves all others unchanged. `nodedb.DELETE`
deletes a subtree, or as `__` the value. `filter(node, name, value)` returns the name and value to use; `nil` skips the
field. Returns the node.]]},
    {"node:gettree([levels [, filter]])", [[Returns the subtree as a table. `filter(node, name, value, recurse,
depth)` returns the value to use (`nil`: none) and whether to descend (`nil`: as without a filter).]]},
    {"node:dump([lines])", [[Returns the subtree as text that `nodedb.load` reads, up to a number of lines
(default 30).]]},
  },
  {
    title = "Methods: locks",
    text = [[
Locks are advisory, counted, and shared by all processes. A lock conflicts with locks of other sessions on the same
node, its ancestors and its descendants. A process loses its locks when it ends, even by a crash. The timeout is in
seconds; without one the call waits for ever. If a lock is not free in time, the call raises `NDB_E_TIMEOUT`.]],
    {"node:lock_incr([timeout])", "Takes the lock, or increments its count."},
    {"node:lock_decr()", "Decrements the count of the lock; at 0 the lock is released."},
    {"node:lock([timeout])", "Releases all locks that this script holds, then takes this one."},
    {"node:grab([timeout])", "Same as `lock_incr`."},
    {"node:release()", "Same as `lock_decr`."},
  },
  {
    title = "Functions over names and subscripts",
    text = [[
These functions need no node object. `path` is a name and subscripts, given one by one or as tables (`"^person",
3, "name"` or `"^person", {3, "name"}`), or a node and subscripts.]],
    {"nodedb.get(path...)", "Returns the value or `nil`."},
    {"nodedb.set(path..., value)", "Sets the value; `nil` deletes it."},
    {"nodedb.incr(path..., by)", [[Adds `by` and returns the sum. `by` is optional after a single name or node, and
after a table of subscripts; its default is 1.]]},
    {"nodedb.data(path...)", "Same as `node:data()`."},
    {"nodedb.kill(path...)", "Deletes the node and its descendants."},
    {"nodedb.count(path...)", "Same as `node:count()`."},
    {"nodedb.get_all(nodes)", [[Returns a table of the values of a list of nodes at one moment, `nil` for nodes without
one. An element is a node, a name, or a table of name and subscripts.]]},
    {"nodedb.set_all(nodes, values)", "Sets the nodes of such a list to the values of another, all of them or none."},
    {"nodedb.merge(to, from)", "Copies one node to another; each is a name or a node."},
    {"nodedb.subscript_next(path...)", [[Returns the subscript after the last one of the path, or `nil`. If the last
subscript is `""`, it returns the first one. For a single name it returns the next name.]]},
    {"nodedb.subscript_previous(path...)", "Same, backwards; if the last one is `\"\"`, it returns the last child."},
    {"nodedb.subscripts(path... [, reverse])", "Iterates over the subscripts after the last one of the path."},
    {"nodedb.node_next(path...)", "Returns a table of the subscripts of the next node with a value, or `nil`."},
    {"nodedb.node_previous(path...)", "Same, backwards."},
    {"nodedb.names([reverse])", "Iterates over the names of stored trees."},
    {"nodedb.lock(nodes [, timeout])", [[Releases all locks, then takes all locks of a list, or none. An element is a
node, a name, or a table of name and subscripts. Without a list it only releases.]]},
    {"nodedb.lock_incr(path... [, timeout])", [[Same as the method. The timeout is optional only if the path is a
single argument, or a name and one table.]]},
    {"nodedb.lock_decr(path...)", "Same as the method."},
    {"nodedb.grab(path... [, timeout])", "Same as `lock_incr`."},
    {"nodedb.release(path...)", "Same as `lock_decr`."},
    {"nodedb.settree(node | name, table [, filter])", "Same as the method."},
    {"nodedb.gettree(node | name [, levels [, filter]])", "Same as the method."},
    {"nodedb.dump(node | name [, lines])", "Same as the method."},
    {"nodedb.load(text)", "Sets the nodes in a text in the format of `dump`, one per line. Returns their number."},
    {"nodedb.str2zwr(value)", "Returns a value in M's notation: `\"a\"_$C(0)`."},
    {"nodedb.zwr2str(text)", "Parses a value in M's notation."},
  },
  {
    title = "Transactions",
    text = [[
The function of a transaction reads one snapshot and its own changes. The call returns the function's results. An
error in it undoes all of its changes and is passed on; no returned number has a special meaning. If another transaction
changed nodes that it read, the function runs again; so it must not have effects elsewhere that must happen only once.
Outside a transaction, each change is a transaction of its own.

A transaction belongs to the coroutine that began it, and to the coroutines that this one resumes meanwhile. If the
coroutine yields out of the transaction, every use of nodes elsewhere raises `NDB_E_LEVEL` until it has been resumed and
the transaction has ended. If nothing can resume the coroutine any more, the transaction is rolled back at once,
otherwise at the time limit of `nodedb.tp_limits`. The coroutine's own next use of nodes then raises `NDB_E_LEVEL`.

    local left = nodedb.tp(function()
      local balance = account:get(0)
      if balance < price then nodedb.trollback() end
      account.__ = balance - price
      return balance - price
    end)]],
    {"nodedb.tp([id,] [names,] f, ...)", [[Runs `f(...)` in a transaction. When it returns, the changes are durable;
with the id `"BATCH"` they are visible, and durable a little later (after `flush_ms` or `nodedb.sync()`). `names` lists
trees in memory that a restart or rollback also restores (`{"*"}`: all). Transactions nest; an inner one commits with
the outer one.]]},
    {"nodedb.transaction([id,] [names,] f)", [[Returns a function that runs `f` in a transaction, with its own
arguments.]]},
    {"nodedb.view(f, ...)", [[Runs `f(...)` on one snapshot and returns its results. Changing a stored node raises an
error, also in nested transactions. It never restarts.]]},
    {"nodedb.trestart()", "Undoes everything and runs the outermost transaction again."},
    {"nodedb.tp_limits([limits])", [[Sets the limits of this Lua state's transactions, and returns them: `restarts`
(default 1000), and `seconds` (default 60), checked when the outermost function returns or restarts. A transaction
beyond a limit is rolled back and raises `NDB_TP_LIMIT`; `math.huge` means no limit.]]},
    {"nodedb.trollback()", "Undoes the transaction. The transaction's call then raises `NDB_TP_ROLLBACK`."},
  },
  {
    title = "In a pipeline with state",
    text = [[
With `state:` in the configuration of a pipeline, `require "nodedb"` gives its script the state of the pipeline: changes
that take effect exactly once, together with the rows of the events that made them.

    local nodedb = require "nodedb"
    local users = nodedb.node "^users"

    function main(event)
      event.visit = users[event.user]:incr(1)
      return event
    end

**Where.** The state is there in `main` and `timer`. Elsewhere, as while the script loads, every use raises
`NDB_E_LEVEL`, but nodes can be made.

**Failed events.** The changes of an event are undone if it fails: after an error, or beyond a limit of time, memory or
output, and also if it will run again. A row that fails later, in the columns of a sink, keeps the changes of its event.

**The end of an event.** Open transactions are rolled back. Trees in memory and iterations end; a later use of such an
iteration raises `NDB_E_LEVEL`. Variables of Lua are no state: scripts run in several VMs, which come and go.

**Transactions.** `tp` groups changes within the event: an error in it undoes them. There are no conflicts. `trestart`
runs the function again, as elsewhere.

**Locks.** Functions that take or release locks raise an error: one event at a time uses the state.

**Names.** Those that begin with `^%` belong to Perigee.

**The store.** `open` raises an error; `close`, `sync`, `stat`, `backup`, `check` and `compact` are absent.

**Time.** It stands still during a batch, and is the same for `time.now`, `os.time`, `os.date` and the expiry of
nodes.

**Memory.** The changes of a batch have a limit of their own, `NDB_E_FULL`. Trees in memory and iterations
count as memory of the VM.

The modules [timer](modules.md#timer) and [window](modules.md#window) build on the state. Scripts with a state need a
build with LuaJIT, and do not run with `isolate: process`.]],
  },
  {
    title = "Errors",
    text = [[
Errors are strings: `nodedb: CODE: text`. Wrong arguments raise `NDB_E_ARGUMENT`.

| code | meaning |
|---|---|
| `NDB_E_ARGUMENT` | a bad name, subscript, value or argument |
| `NDB_E_KEY`, `NDB_E_VALUE` | a path longer than 1,900 bytes, a value longer than 64 MiB |
| `NDB_E_FULL` | the changes of a transaction need more memory than `transaction_bytes` |
| `NDB_E_TIMEOUT`, `NDB_E_LOCKS` | a lock, or the right to change nodes, was not free in time; too many locks |
| `NDB_E_LEVEL` | no transaction is open, an inner one still is, or a suspended coroutine has one open |
| `NDB_E_CONFLICT` | another transaction changed nodes that this one read (`tp` runs it again) |
| `NDB_E_MERGE` | source and target of a merge overlap |
| `NDB_E_NUMBER` | the result is out of the range of numbers |
| `NDB_E_DISK` | the disk is full, or a write failed; see below |
| `NDB_E_CORRUPT` | the folder's data is damaged |
| `NDB_E_SUPERSEDED` | suspended for so long that another process took over; changes not yet durable are lost |
| `NDB_E_MEMORY` | out of memory |
| `NDB_TP_ROLLBACK`, `NDB_TP_RESTART` | raised by `trollback` and `trestart` |
| `NDB_TP_LIMIT` | a transaction restarted too often or took too long |

A change that raises `NDB_E_DISK` has no effect. After `tp` and `sync`, the changes stay visible to this process, which
retries the write until it ends: `nodedb.sync()` returns once they are durable, and raises the error again otherwise.]],
    {"nodedb.get_error_code(message)", [[Returns the code in an error, also if text was added to it, or `nil`. Compare
it with the constants of the module: `nodedb.NDB_E_TIMEOUT`.]]},
    {"nodedb.get_error_code(message)", [[Returns the code in an error, also if text was added to it, or `nil`. Compare
it with the constants of the
module: `nodedb.NDB_E_TIMEOUT`.]]},
    {"nodedb.DELETE", "The mark that deletes a subtree or value in `settree`."},
    {"nodedb.method_names", "The names of all methods, as text."},
  },
}
