package node

// trim returns what takes pages of the engine's tables out of the process; nil
// without an engine.
func (n *Node) trim() func() error {
	if n.owners == nil {
		return nil
	}
	return func() error { return n.owners.Engine().Trim() }
}
