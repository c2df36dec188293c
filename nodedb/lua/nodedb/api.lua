-- The reference of the module nodedb. The page docs/reference/nodedb-lua.md is printed from
-- it, and a test holds it against the functions and methods that there are.
return {
  {
    title = "Opening a store",
    text = [[
A Lua state has one store open at a time. `open` comes first; a script that never calls it uses the folder in the
environment variable `NODEDB_FOLDER`, or no store at all: then only trees in memory can be used. In Perigee's engine
the store is open already: `open` raises an error, and the other functions of this section are absent.]],
    {"nodedb.open(folder [, options])", [[Opens the store in a folder, which is created if it is missing. The options:
`read_only`, `flush_ms`
(changes outside transactions are durable, and seen by other processes, after this time; default 10),
`no_sync` (a crash of the machine may lose everything since the last sync), `transaction_bytes` and
`pending_bytes` (memory for the changes of one transaction, and for those not yet committed; default 256 MiB
each).]]},
    {"nodedb.close()", [[Commits what is pending and closes the store. Locks are released, trees in memory are
dropped, open
iterations end. Nodes stay valid: they are paths. A Lua state that ends closes its store itself.]]},
    {"nodedb.sync()", [[Returns when everything that was changed before is durable. In a transaction it raises
`NDB_E_LEVEL`, as `close` does.]]},
    {"nodedb.stat()", [[Returns a table: `nodes`, `map_bytes`, `used_bytes`, `free_bytes`, `pending_bytes`, `commits`,
`expiring`,
`readers`, `locks`, `depth`, `processes`.]]},
    {"nodedb.backup(folder)", [[Writes a consistent, compacted copy of the store into a new folder, while others go
on.]]},
    {"nodedb.check()", [[Reads everything and returns the number of faults, and their descriptions as text, a line
each.]]},
    {"nodedb.compact(folder)", "Compacts the store in a folder that no process has open."},
  },
  {
    title = "Nodes",
    text = [[
A node is a path: a name and up to 31 subscripts. Names that begin with `^` are stored and shared by all processes;
others are trees in the memory of this Lua state. Making a node reads and writes nothing.

    local person = nodedb.node("^person", 3)
    person.name.first.__ = "Ada"          -- set
    print(person.name.first.__)           --> Ada
    person.visits:incr()                  -- a method
    print(person["e-mail"].__)            --> nil

A path is one object: `person.name == person.name`, also as the key of a table, as long as something holds it. A
repeated path is found without a call into C, and what nothing holds is collected. Nodes cannot be changed, and stay
valid for ever, also those that an iteration returns.

Every field of a node is a subnode, except those that begin with two underscores: `__` is the value, and `__get`,
`__set` and so on are the methods. `node:get()` and `node:__get()` are the same; the names of methods can be
subscripts too: `node.get.__ = 1`. The subnode with a name that begins with two underscores is `node("__name")`.
Only `.__` can be assigned: `node.x = 5` raises an error that says so.

**Subscripts** are strings and numbers. A string that spells a number as M does (`"3"`, `".5"`, but not `"3.0"`,
`"0.5"`) is that number, so `node[3]`, `node[3.0]` and `node["3"]` are one node. Numbers come first, by value, then
strings, by bytes; `""` is a subscript and precedes all others. Iterations return numbers as numbers. Integers
beyond 2^53 come back as strings of their digits, or as integers where Lua has them (5.3 and later).

**Values** are strings, numbers and booleans, and come back as what they were. Numbers have up to 18 significant
digits. A number that is infinite or not a number is an error. In Lua 5.3 and later, whose integers and floats
are one key of a table, `node[2^62]` is the node of the integer; on LuaJIT that of the float, `4611686018427388000`.

Do not use nodes in a finalizer (`__gc`): it can run in the middle of another use.]],
    {"nodedb.node(name [, subscripts...])", [[Returns the node of a name and subscripts, given one by one or as
tables. `nodedb.node(node, subscripts...)`
continues from a node, as does the call `node(subscripts...)`.]]},
    {"nodedb.isnode(value)", "Returns whether a value is a node of this module."},
    {"nodedb.inherit(constructor [, metatable])", [[Returns a constructor of nodes that have more methods, the table of
those methods, and the methods that they override. `metatable.__index`
is that table (default: `metatable` itself); metamethods such as `__concat` and `__tostring` are taken over,
those that make a node (`__index`, `__newindex`) are not. Reading and assigning `.__` calls its `get` and `set`.
Subnodes are of the same kind. A field of that
table hides the subnode of its name, which is then `node("name")`.]]},
    {"node.__", "The value, or `nil`. Assign it to set the value; assign `nil` to delete it."},
    {"node + number, node - number", "Increments the node by the number, and returns the node."},
    {"tostring(node)", "The node as M writes it: `^person(3,\"name\")`."},
    {"pairs(node)", [[As `node:pairs()`, where Lua has the metamethod `__pairs` (5.2 and later). `ipairs(node)` is
an error: a node has no end of subscripts.]]},
  },
  {
    title = "Methods: values",
    {"node:get([default])", "Returns the value, or `default` if there is none."},
    {"node:set(value)", "Sets the value. `nil` deletes it."},
    {"node:set_new(value)", "Sets the value if there is none. Returns whether it did."},
    {"node:compare_and_set(expected, value)", [[Sets the value if the present one equals `expected` (`nil`: if there
is none). Returns whether it did.]]},
    {"node:incr([by])", [[Adds a number (default 1) and returns the sum. The arithmetic is exact in decimal, to 18
digits: three times
0.1 is 0.3. A missing value counts as 0, a text by its numeric prefix.]]},
    {"node:kill()", "Deletes the node and all below it."},
    {"node:data()", "Returns 0 if there is nothing, 1 for a value, 10 for subnodes, 11 for both."},
    {"node:has_value()", "Returns whether there is a value."},
    {"node:has_tree()", "Returns whether there are subnodes."},
    {"node:count()", "Returns the number of values at the node and below."},
    {"node:merge(from)", [[Copies the value and all subnodes of another node. What is there and not in `from` stays.
Copying a node
into its own subtree, or the other way round, is an error.]]},
    {"node:expire([seconds])", [[Deletes the value after a time, unless it is set again before; with 0 at once.
Without an argument
the limit is removed. Returns whether there is a value. Times are those of the machine's clock. In a transaction no
time passes: nodes expire by the time of its begin.]]},
    {"node:expire_at([time])", [[Likewise at a time in seconds since 1970, as `os.time()` returns it; one that is past
ends the value at once.]]},
    {"node:expire_tree([seconds])", [[As `expire` for all nodes that have a value now, from this one down. Nodes that
are set later have no limit.]]},
    {"node:kill_range([from [, to]])", [[Deletes the subnodes from one subscript to another, both included, with all
below them. `nil`: no bound. The node keeps its own value.]]},
    {"node:ttl()", "Returns the seconds that are left, or `nil` if there is no limit or no value."},
  },
  {
    title = "Methods: iteration",
    text = [[
The argument of an iteration is `true` for the reverse order, or a table of options: `reverse`, `from` and `to`
(bounds, both inclusive, in the direction of travel), `limit`. Iterations see changes that this script makes while
they run, as M's `$order` does, and may go on after the transaction in which they began.

    for day, value in stats:values {from = 20240101, to = 20241231} do … end]],
    {"node:subscripts([reverse | options])", "Iterates over the subscripts of the next level."},
    {"node:values([reverse | options])", "Iterates over subscripts and values (`nil` where a subnode has none)."},
    {"node:pairs([reverse | options])", [[Iterates over subnodes, values and subscripts: `for child, value, subscript
in node:pairs()`.]]},
    {"node:walk([reverse | options])", [[Iterates over all nodes with a value, from this one down, and their values.
Here `from` and `to` are
subscripts of subnodes, or nodes below this one, and stand for all that is below them, too.]]},
  },
  {
    title = "Methods: the path",
    {"node:name()", "Returns the last subscript, or the name if there is none."},
    {"node:varname()", "Returns the name, with its `^`."},
    {"node:depth()", "Returns the number of subscripts."},
    {"node:subsarray()", "Returns a table of the subscripts."},
    {"node:ismutable()", "Returns `false`. There are no mutable nodes."},
  },
  {
    title = "Methods: trees as tables",
    text = [[
A tree is a table; the value of a node that has subnodes is its field `__`:

    person:settree {__ = "Ada", looks = {__ = "fine", eyes = "blue"}, age = nodedb.DELETE}]],
    {"node:settree(table [, filter])", [[Sets the values in a table, and leaves all others. `nodedb.DELETE` deletes a
subtree, or as `__` the value.
`filter(node, name, value)` returns the name and value to use; `nil` skips the field. Returns the node.]]},
    {"node:gettree([levels [, filter]])", [[Returns the subtree as a table. `filter(node, name, value, recurse,
depth)` returns the value to use (`nil`:
none) and whether to descend (`nil`: as without a filter).]]},
    {"node:dump([lines])", [[Returns the subtree as text, at most 30 lines or as many as given, as `nodedb.load`
reads it.]]},
  },
  {
    title = "Methods: locks",
    text = [[
Locks are advisory, counted, and shared by all processes. A lock conflicts with those of others on the same node,
its ancestors and its descendants. A process that ends, however it ends, loses its locks. The timeout is in seconds;
without one the call waits for ever. A lock that is not free in time raises `NDB_E_TIMEOUT`.]],
    {"node:lock_incr([timeout])", "Takes the lock once more."},
    {"node:lock_decr()", "Releases the lock once."},
    {"node:lock([timeout])", "Releases all locks that this script holds, then takes this one."},
    {"node:grab([timeout])", "As `lock_incr`."},
    {"node:release()", "As `lock_decr`."},
  },
  {
    title = "Functions over names and subscripts",
    text = [[
These do without a node object. `path` stands for a name and subscripts, given one by one or as tables (`"^person",
3, "name"` or `"^person", {3, "name"}`), or for a node and subscripts.]],
    {"nodedb.get(path...)", "Returns the value or `nil`."},
    {"nodedb.set(path..., value)", "Sets the value; `nil` deletes it."},
    {"nodedb.incr(path..., by)", [[Adds `by` and returns the sum. After a name or node alone, or a table of subscripts,
it may be left out: then it is 1.]]},
    {"nodedb.data(path...)", "As `node:data()`."},
    {"nodedb.kill(path...)", "Deletes the node and all below it."},
    {"nodedb.count(path...)", "As `node:count()`."},
    {"nodedb.get_all(nodes)", [[Returns a table of the values of a list of nodes as they are at one moment, `nil` where
there is none. An element is a node, a
name, or a table of name and subscripts.]]},
    {"nodedb.set_all(nodes, values)", "Sets the nodes of such a list to the values of another, all of them or none."},
    {"nodedb.merge(to, from)", "Copies one node to another; each is a name or a node."},
    {"nodedb.subscript_next(path...)", [[Returns the subscript that follows the last one of the path, or `nil`. After
the last subscript `""` it is
the first. Of a name alone: the next name.]]},
    {"nodedb.subscript_previous(path...)", "Likewise backwards; after `\"\"` the last."},
    {"nodedb.subscripts(path... [, reverse])", "Iterates over the subscripts that follow the last one of the path."},
    {"nodedb.node_next(path...)", "Returns a table of the subscripts of the next node with a value, or `nil`."},
    {"nodedb.node_previous(path...)", "Likewise backwards."},
    {"nodedb.names([reverse])", "Iterates over the names of stored trees."},
    {"nodedb.lock(nodes [, timeout])", [[Releases all locks, then takes all of a list, or none. An element is a node,
a name, or a table of name and
subscripts. Without a list it only releases.]]},
    {"nodedb.lock_incr(path... [, timeout])", [[As the method. The timeout may be left out only if the path is a
single argument, or a name and one table.]]},
    {"nodedb.lock_decr(path...)", "As the method."},
    {"nodedb.grab(path... [, timeout])", "As `lock_incr`."},
    {"nodedb.release(path...)", "As `lock_decr`."},
    {"nodedb.settree(node | name, table [, filter])", "As the method."},
    {"nodedb.gettree(node | name [, levels [, filter]])", "As the method."},
    {"nodedb.dump(node | name [, lines])", "As the method."},
    {"nodedb.load(text)", "Sets the nodes in a text as `dump` writes it, a line each. Returns their number."},
    {"nodedb.str2zwr(value)", "Returns a value as M writes it: `\"a\"_$C(0)`."},
    {"nodedb.zwr2str(text)", "Reads a value as M writes it."},
  },
  {
    title = "Transactions",
    text = [[
The function of a transaction reads from one snapshot, with its own changes on top. What it returns is returned. An
error in it undoes all of its changes and is passed on; no number that it returns means anything. If another
transaction changed what it read, it runs again: so it must not have effects elsewhere that must happen once. Outside a
transaction each change is one of its own.

A transaction belongs to the coroutine that began it, and to those that this one resumes meanwhile. If it yields out of
the transaction, every use of nodes elsewhere raises `NDB_E_LEVEL` until it has been resumed and the transaction has
ended. A coroutine that nothing can resume any more loses its transaction at once, any other one when the time limit of
`nodedb.tp_limits` has passed; its own next use of nodes raises `NDB_E_LEVEL` then.

    local left = nodedb.tp(function()
      local balance = account:get(0)
      if balance < price then nodedb.trollback() end
      account.__ = balance - price
      return balance - price
    end)]],
    {"nodedb.tp([id,] [names,] f, ...)", [[Runs `f(...)` in a transaction. When it returns, the changes are durable;
with the id `"BATCH"` they are
visible, and durable a little later (`flush_ms`, or `nodedb.sync()`). `names` lists trees in memory that a
restart or rollback puts back too (`{"*"}`: all). Transactions nest; an inner one counts when the outer one
does.]]},
    {"nodedb.transaction([id,] [names,] f)", [[Returns a function that runs `f` in a transaction, with its own
arguments.]]},
    {"nodedb.view(f, ...)", [[Runs `f(...)` and returns what it returns. It reads one snapshot, and what changes stored
nodes raises an error, also
in transactions inside it. It never runs again.]]},
    {"nodedb.trestart()", "Undoes everything and runs the outermost transaction again."},
    {"nodedb.tp_limits([limits])", [[Sets the limits of this Lua state's transactions, and returns them: `restarts`
(default 1000), and `seconds` (default 60), which is looked at when the function of the outermost one returns or
restarts. A transaction beyond a limit is rolled back and raises `NDB_TP_LIMIT`; `math.huge` is no limit.]]},
    {"nodedb.trollback()", "Undoes the transaction, whose call then raises `NDB_TP_ROLLBACK`."},
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
| `NDB_E_LEVEL` | no transaction is open, an inner one still is, or that of a suspended coroutine is |
| `NDB_E_CONFLICT` | another transaction changed what this one read (`tp` runs it again) |
| `NDB_E_MERGE` | source and target of a merge lie within each other |
| `NDB_E_NUMBER` | the result is beyond the range of numbers |
| `NDB_E_DISK` | the disk is full, or a write failed; see below |
| `NDB_E_CORRUPT` | the folder does not hold what it should |
| `NDB_E_SUPERSEDED` | stopped for so long that another process took over; what was not durable is gone |
| `NDB_E_MEMORY` | no memory |
| `NDB_TP_ROLLBACK`, `NDB_TP_RESTART` | raised by `trollback` and `trestart` |
| `NDB_TP_LIMIT` | a transaction restarted too often or took too long |

A change that raises `NDB_E_DISK` has done nothing. After `tp` and `sync`, what was changed stays visible to this
process, which tries to write it until it ends: `nodedb.sync()` returns once it is durable, and raises the error again
while it is not.]],
    {"nodedb.get_error_code(message)", [[Returns the code in an error, also if text was added to it, or `nil`. Compare
it with the constants of the
module: `nodedb.NDB_E_TIMEOUT`.]]},
    {"nodedb.DELETE", "The mark that deletes in `settree`."},
    {"nodedb.method_names", "The names of all methods, as text."},
  },
}
