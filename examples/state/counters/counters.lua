-- Numbers the orders of each user, sums what the user has spent, and counts the users of each country: users
-- belong to the country of their first order.
local nodedb = require "nodedb"
local users, countries = nodedb.node "^users", nodedb.node "^countries"

function main(order)
  local user = users[order.user]
  order.nth = user.orders:incr()
  order.spent = user.spent:incr(order.amount)
  if order.nth == 1 then
    countries[order.country].users:incr()
  end
  order.users_of_country = countries[order.country].users.__
  return order
end
