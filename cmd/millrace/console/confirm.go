package console

// confirmation is the second step of what cannot be undone: it says what will be, and its form sends
// again what was sent, with sure. It needs no script.
type confirmation struct {
	Says   []string
	Action string      // where the form is sent
	Fields [][2]string // names and values that are sent again
	Button string
	Back   string // where who is not sure goes
}

// sureField is the form's field by which the second step is told from the first.
const sureField = "sure"

// confirm asks whether somebody is sure.
func (c *Console) confirm(x *exchange, title string, ask *confirmation) error {
	return c.show(x, "confirm", title, ask, nil)
}
