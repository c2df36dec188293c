module example.com/trim

go 1.26
