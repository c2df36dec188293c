---@meta nodedb

---A hierarchical, transactional database.
---@class nodedblib
local nodedb = {}

---A node: a name and subscripts. Every field is a subnode; __ is the value.
---@class node
---@field [string] any
---@field [number] any
local node = {}

---Returns the node with a name and subscripts, given one by one or as tables. `nodedb.node(node, subscripts...)` returns a subnode of a node, as does the call `node(subscripts...)`.
---@param name any
---@param ... any
---@return node
function nodedb.node(name, ...) end

---Returns whether a value is a node of this module.
---@param value any
---@return any ...
function nodedb.isnode(value) end

---Returns a constructor of nodes with additional methods, the table of those methods, and the methods that they override. `metatable.__index` is that table (default: `metatable` itself). The nodes also get its metamethods, such as `__concat` and `__tostring`, except `__index` and `__newindex`. Reading and assigning `.__` calls the methods `get` and `set`. Subnodes are of the same kind. A field of the table hides the subnode of that name; write `node("name")` for it.
---@param constructor any
---@param metatable? any
---@return any ...
function nodedb.inherit(constructor, metatable) end

---Returns the value, or `default` if there is none.
---@param default? any
---@return any ...
function node:get(default) end

---Sets the value. `nil` deletes it.
---@param value any
function node:set(value) end

---Sets the value unless there is one. Returns whether it did.
---@param value any
function node:set_new(value) end

---Sets the value if the current one equals `expected` (`nil`: if there is none). Returns whether it did.
---@param expected any
---@param value any
function node:compare_and_set(expected, value) end

---Adds a number (default 1) and returns the sum. The arithmetic is exact in decimal, to 18 digits: three times 0.1 is 0.3. A missing value counts as 0, text as its numeric prefix.
---@param by? any
---@return any ...
function node:incr(by) end

---Deletes the node and its descendants.
function node:kill() end

---Returns 0 for neither value nor subnodes, 1 for a value, 10 for subnodes, 11 for both.
---@return any ...
function node:data() end

---Returns whether there is a value.
---@return any ...
function node:has_value() end

---Returns whether there are subnodes.
---@return any ...
function node:has_tree() end

---Returns the number of values in the subtree, including the node's own.
---@return any ...
function node:count() end

---Copies the value and all descendants of another node. Nodes that `from` does not have stay unchanged. Copying a node into its own subtree, or its subtree into it, raises an error.
---@param from any
function node:merge(from) end

---Makes the value expire after a time, unless it is set again before; 0 means now. Without an argument it removes the expiry. Returns whether there is a value. Expiry follows the machine's clock. In a transaction, nodes expire by the time at which it began.
---@param seconds? any
function node:expire(seconds) end

---Same for a time in seconds since 1970, as `os.time()` returns it; a time in the past means now.
---@param time? any
---@return any ...
function node:expire_at(time) end

---Same as `expire` for all nodes of the subtree that have a value now. Nodes set later do not expire.
---@param seconds? any
---@return any ...
function node:expire_tree(seconds) end

---Deletes the subnodes between two subscripts, both included, with their descendants. `nil`: no bound. The node keeps its own value.
---@param from? any
---@param to? any
function node:kill_range(from, to) end

---Returns the seconds until the value expires, or `nil` if it does not expire or there is none.
---@return any ...
function node:ttl() end

---Iterates over the subscripts of the next level.
---@param options? any
---@return any ...
function node:subscripts(options) end

---Iterates over subscripts and values (`nil` for a subnode without one).
---@param options? any
---@return any ...
function node:values(options) end

---Iterates over subnodes, values and subscripts: `for child, value, subscript in node:pairs()`.
---@param options? any
---@return any ...
function node:pairs(options) end

---Iterates over all nodes of the subtree that have a value, and their values. Here `from` and `to` are subscripts of subnodes, or nodes below this one, and include their descendants.
---@param options? any
---@return any ...
function node:walk(options) end

---Returns the last subscript, or the name of a node without subscripts.
---@return any ...
function node:name() end

---Returns the name, including its `^`.
---@return any ...
function node:varname() end

---Returns the number of subscripts.
---@return any ...
function node:depth() end

---Returns a table of the subscripts.
---@return any ...
function node:subsarray() end

---Returns `false`: nodes are immutable.
---@return any ...
function node:ismutable() end

---Sets the values in a table, and leaves all others unchanged. `nodedb.DELETE` deletes a subtree, or as `__` the value. `filter(node, name, value)` returns the name and value to use; `nil` skips the field. Returns the node.
---@param table any
---@param filter? any
---@return any ...
function node:settree(table, filter) end

---Returns the subtree as a table. `filter(node, name, value, recurse, depth)` returns the value to use (`nil`: none) and whether to descend (`nil`: as without a filter).
---@param levels? any
---@param filter? any
---@return any ...
function node:gettree(levels, filter) end

---Returns the subtree as text that `nodedb.load` reads, up to a number of lines (default 30).
---@param lines? any
---@return any ...
function node:dump(lines) end

---Takes the lock, or increments its count.
---@param timeout? any
function node:lock_incr(timeout) end

---Decrements the count of the lock; at 0 the lock is released.
function node:lock_decr() end

---Releases all locks that this script holds, then takes this one.
---@param timeout? any
function node:lock(timeout) end

---Same as `lock_incr`.
---@param timeout? any
---@return any ...
function node:grab(timeout) end

---Same as `lock_decr`.
---@return any ...
function node:release() end

---Returns the value or `nil`.
---@param ... any
---@return any ...
function nodedb.get(...) end

---Sets the value; `nil` deletes it.
---@param ... any
function nodedb.set(...) end

---Adds `by` and returns the sum. `by` is optional after a single name or node, and after a table of subscripts; its default is 1.
---@param ... any
---@return any ...
function nodedb.incr(...) end

---Same as `node:data()`.
---@param ... any
---@return any ...
function nodedb.data(...) end

---Deletes the node and its descendants.
---@param ... any
function nodedb.kill(...) end

---Same as `node:count()`.
---@param ... any
---@return any ...
function nodedb.count(...) end

---Returns a table of the values of a list of nodes at one moment, `nil` for nodes without one. An element is a node, a name, or a table of name and subscripts.
---@param nodes any
---@return any ...
function nodedb.get_all(nodes) end

---Sets the nodes of such a list to the values of another, all of them or none.
---@param nodes any
---@param values any
function nodedb.set_all(nodes, values) end

---Copies one node to another; each is a name or a node.
---@param to any
---@param from any
function nodedb.merge(to, from) end

---Returns the subscript after the last one of the path, or `nil`. If the last subscript is `""`, it returns the first one. For a single name it returns the next name.
---@param ... any
---@return any ...
function nodedb.subscript_next(...) end

---Same, backwards; if the last one is `""`, it returns the last child.
---@param ... any
---@return any ...
function nodedb.subscript_previous(...) end

---Iterates over the subscripts after the last one of the path.
---@param ... any
---@return any ...
function nodedb.subscripts(...) end

---Returns a table of the subscripts of the next node with a value, or `nil`.
---@param ... any
---@return any ...
function nodedb.node_next(...) end

---Same, backwards.
---@param ... any
function nodedb.node_previous(...) end

---Iterates over the names of stored trees.
---@param reverse? any
---@return any ...
function nodedb.names(reverse) end

---Releases all locks, then takes all locks of a list, or none. An element is a node, a name, or a table of name and subscripts. Without a list it only releases.
---@param nodes any
---@param timeout? any
function nodedb.lock(nodes, timeout) end

---Same as the method. The timeout is optional only if the path is a single argument, or a name and one table.
---@param ... any
---@return any ...
function nodedb.lock_incr(...) end

---Same as the method.
---@param ... any
---@return any ...
function nodedb.lock_decr(...) end

---Same as `lock_incr`.
---@param ... any
---@return any ...
function nodedb.grab(...) end

---Same as `lock_decr`.
---@param ... any
---@return any ...
function nodedb.release(...) end

---Same as the method.
---@param name any
---@param table any
---@param filter? any
---@return any ...
function nodedb.settree(name, table, filter) end

---Same as the method.
---@param name any
---@param levels? any
---@param filter? any
---@return any ...
function nodedb.gettree(name, levels, filter) end

---Same as the method.
---@param name any
---@param lines? any
---@return any ...
function nodedb.dump(name, lines) end

---Sets the nodes in a text in the format of `dump`, one per line. Returns their number.
---@param text any
function nodedb.load(text) end

---Returns a value in M's notation: `"a"_$C(0)`.
---@param value any
---@return any ...
function nodedb.str2zwr(value) end

---Parses a value in M's notation.
---@param text any
function nodedb.zwr2str(text) end

---Runs `f(...)` in a transaction. When it returns, the changes are durable; with the id `"BATCH"` they are visible, and durable a little later (after `flush_ms` or `nodedb.sync()`). `names` lists trees in memory that a restart or rollback also restores (`{"*"}`: all). Transactions nest; an inner one commits with the outer one.
---@param id? any
---@param names? any
---@param f? any
---@param ... any
---@return any ...
function nodedb.tp(id, names, f, ...) end

---Returns a function that runs `f` in a transaction, with its own arguments.
---@param id? any
---@param names? any
---@param f? any
---@return any ...
function nodedb.transaction(id, names, f) end

---Runs `f(...)` on one snapshot and returns its results. Changing a stored node raises an error, also in nested transactions. It never restarts.
---@param f any
---@param ... any
---@return any ...
function nodedb.view(f, ...) end

---Undoes everything and runs the outermost transaction again.
function nodedb.trestart() end

---Sets the limits of this Lua state's transactions, and returns them: `restarts` (default 1000), and `seconds` (default 60), checked when the outermost function returns or restarts. A transaction beyond a limit is rolled back and raises `NDB_TP_LIMIT`; `math.huge` means no limit.
---@param limits? any
---@return any ...
function nodedb.tp_limits(limits) end

---Undoes the transaction. The transaction's call then raises `NDB_TP_ROLLBACK`.
function nodedb.trollback() end

---Returns the code in an error, also if text was added to it, or `nil`. Compare it with the constants of the module: `nodedb.NDB_E_TIMEOUT`.
---@param message any
---@return any ...
function nodedb.get_error_code(message) end

---Returns the code in an error, also if text was added to it, or `nil`. Compare it with the constants of the module: `nodedb.NDB_E_TIMEOUT`.
---@param message any
---@return any ...
function nodedb.get_error_code(message) end

return nodedb
