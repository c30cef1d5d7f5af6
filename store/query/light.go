package query

// lightNodes is the most nodes that a light expression has. Each reads the item once, so that
// all take no longer than some copies of the item.
const lightNodes = 64

// lightFunctions are functions that take no more time than reading their arguments.
var lightFunctions = map[string]bool{
	"IS_ARRAY": true, "IS_BOOL": true, "IS_BOOLEAN": true, "IS_DEFINED": true, "IS_FINITE_NUMBER": true, "IS_INTEGER": true, "IS_NULL": true,
	"IS_NUMBER": true, "IS_OBJECT": true, "IS_PRIMITIVE": true, "IS_STRING": true, "IIF": true, "STARTSWITH": true,
	"ENDSWITH": true, "CONTAINS": true, "STRINGEQUALS": true, "LENGTH": true, "ARRAY_LENGTH": true,
}

// light reports whether an expression is so cheap, whatever the item, that it needs no
// budget: most conditions are, and reading a field or two must stay as fast as it is.
func light(n node) bool {
	// Only node kinds that read their operands once are listed. Any other kind, also one that
	// is added later, makes the expression heavy.
	nodes, is := 0, true
	visit(n, func(n node) {
		switch n := n.(type) {
		case *literal:
			return
		case *path, *param, *logical, *between, *choice:
		case *unary:
		case *operation:
			_, x := constant(n.x)
			_, y := constant(n.y)
			compares := comparisons[n.op] != nil && (x || y) // two paths may lead to large objects
			is = is && (compares || n.op == "??" || len(n.op) == 1 && comparisons[n.op] == nil)
		case *in:
			for _, e := range n.list {
				_, ok := constant(e)
				is = is && ok
			}
		case *like:
			v, ok := constant(n.pattern)
			is = is && ok && v.typ == String && n.escape == nil && textsOf(newPieces(v, stringValue(nil))) != nil
		case *call:
			is = is && lightFunctions[n.name]
		default:
			is = false
		}
		nodes++
	})
	return is && nodes <= lightNodes
}
