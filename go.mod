module github.com/tokenkeep/tokenkeep

go 1.26.0
