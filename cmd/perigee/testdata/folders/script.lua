function main(event)
  if event.email:find("1", 1, true) then error("an event that becomes a dead letter") end
  return event
end
