-- The label for a shop assistant: "3 x lamp", marked when the order is large.
function main(row)
  local label = row.count .. " x " .. row.item
  if row.large then label = label .. " (large)" end
  return label
end
