local count = require "nodedb".node "^count"

function main(event)
  count:incr()
  return nil
end
