module example.com/pinned

go 1.26

require github.com/google/go-cmp v0.6.0

replace github.com/google/go-cmp => ./cmp
