-- The script of the pipeline: it takes the section of a page from its address.
function main(event)
    event.section = event.url:match("^https://[^/]+/([^/]+)/")
    return event
end
