package dataset

import (
	"strconv"
	"time"
)

const (
	// CustomerBytes is the size of every customer.
	CustomerBytes = 1024
	// OrderLines is the number of lines of every order. An order has about 580 bytes.
	OrderLines = 3
)

// Shop makes customers, and orders that they place. Everything follows from one
// seed, as in a Set. It is immutable and safe for concurrent use.
type Shop struct {
	ids       Set // for its seed
	customers int
}

// Order is one order, as relational tables want it.
type Order struct {
	ID, CustomerID string
	Ordered        time.Time
	Lines          [OrderLines]Line
}

// Line is one line of an order.
type Line struct {
	SKU, Name string
	Cents     int64 // of one piece
	Quantity  int64
}

// NewShop returns a shop with so many customers.
func NewShop(seed uint64, customers int) *Shop {
	return &Shop{ids: Set{cfg: Config{Seed: seed}, text: words(seed)}, customers: customers}
}

// Customers returns the number of customers.
func (s *Shop) Customers() int { return s.customers }

// CustomerID returns the id of customer c.
func (s *Shop) CustomerID(c int) string { return s.ids.id('u', c) }

// Drawn returns the customer of an order that anybody may have placed: the orders
// are spread evenly.
func (s *Shop) Drawn(order int) int {
	return int(mix(s.ids.cfg.Seed^uint64(order)) % uint64(s.customers))
}

// AppendCustomer appends customer c as compact JSON. How many orders there are is
// for others to say.
func (s *Shop) AppendCustomer(dst []byte, c int) []byte {
	id, from := s.CustomerID(c), len(dst)
	dst = append(dst, `{"id":"`+id+`","type":"customer","customerId":"`+id+`","firstName":"Jon","lastName":"Yang `...)
	dst = strconv.AppendInt(dst, int64(c), 10)
	dst = append(dst, `","emailAddress":"jon`...)
	dst = strconv.AppendInt(dst, int64(c), 10)
	dst = append(dst, `@adventure-works.com","addresses":[{"addressLine1":"3761 N. 14th St","city":"Rockhampton","state":"QLD","country":"AU","zipCode":"4700"}],"notes":"`...)
	left := CustomerBytes - (len(dst) - from) - len(`"}`)
	at := int(mix(uint64(c)) % uint64(len(s.ids.text)-CustomerBytes))
	dst = append(dst, s.ids.text[at:at+left]...)
	return append(dst, `"}`...)
}

// Order returns the order with an ordinal, placed by a customer.
func (s *Shop) Order(customer, ordinal int) Order {
	h := mix(s.ids.cfg.Seed ^ ^uint64(ordinal))
	o := Order{
		ID: s.ids.id('o', ordinal), CustomerID: s.CustomerID(customer),
		Ordered: time.Unix(1_600_000_000+int64(h%100_000_000), 0).UTC(),
	}
	for i := range o.Lines {
		h = mix(h)
		model := strconv.FormatUint(10+h%90, 10)
		o.Lines[i] = Line{
			SKU: "BK-R" + model + "R-62", Name: "Road-" + model + "0 Red, 62, with pedals, a bell and a strong front light",
			Cents: 100 + int64(h>>16%400_000), Quantity: 1 + int64(h>>40%9),
		}
	}
	return o
}

// AppendJSON appends the order as compact JSON.
func (o *Order) AppendJSON(dst []byte) []byte {
	at := o.Ordered.Format("2006-01-02T15:04:05")
	dst = append(dst, `{"id":"`+o.ID+`","type":"salesOrder","customerId":"`+o.CustomerID+`","orderDate":"`+at+`","shipDate":"`+at+`","details":[`...)
	for i := range o.Lines {
		l := &o.Lines[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"sku":"`+l.SKU+`","name":"`+l.Name+`","price":`...)
		dst = strconv.AppendInt(dst, l.Cents/100, 10)
		dst = append(dst, '.', byte('0'+l.Cents/10%10), byte('0'+l.Cents%10))
		dst = append(dst, `,"quantity":`...)
		dst = strconv.AppendInt(dst, l.Quantity, 10)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}
