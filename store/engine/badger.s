// The functions of Badger that merger.go names have no body in Go: the compiler allows that in a package with a file
// such as this one.
