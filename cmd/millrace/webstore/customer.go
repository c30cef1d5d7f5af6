package webstore

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// customerBytes is how long a customer's JSON is in the middle; sizes spread by
// customerSpread to both sides. A second address comes on top.
const (
	customerBytes  = 486
	customerSpread = 8
)

// shopShare and secondAddress are shares of the customers.
const (
	shopShare     = 0.033
	secondAddress = 0.002
)

// Customer is an item of customer.
type Customer struct {
	ID              string    `json:"id"`
	Type            string    `json:"type"` // customer
	CustomerID      string    `json:"customerId"`
	Title           string    `json:"title"`
	FirstName       string    `json:"firstName"`
	LastName        string    `json:"lastName"`
	EmailAddress    string    `json:"emailAddress"`
	PhoneNumber     string    `json:"phoneNumber"`
	CreationDate    string    `json:"creationDate"`
	Addresses       []Address `json:"addresses"`
	Password        Password  `json:"password"`
	SalesOrderCount int       `json:"salesOrderCount"`

	// Shop says that it buys as a shop does: often, and many lines.
	Shop bool `json:"-"`
}

// Address is where a customer lives.
type Address struct {
	AddressLine1 string `json:"addressLine1"`
	AddressLine2 string `json:"addressLine2"`
	City         string `json:"city"`
	State        string `json:"state"`
	Country      string `json:"country"`
	ZipCode      string `json:"zipCode"`
}

// Password stands for the digest of one.
type Password struct {
	Hash string `json:"hash"`
	Salt string `json:"salt"`
}

// Order is an item of customer: what was sold to the customer in whose logical
// partition it lies. Names and prices of its lines are no copies: they stay as
// they were sold.
type Order struct {
	ID         string `json:"id"`
	Type       string `json:"type"` // salesOrder
	CustomerID string `json:"customerId"`
	OrderDate  string `json:"orderDate"`
	ShipDate   string `json:"shipDate"`
	Details    []Line `json:"details"`

	// Day counts from the store's first, 2011-05-31.
	Day int `json:"-"`
}

// Line is one line of an Order.
type Line struct {
	SKU      string `json:"sku"`
	Name     string `json:"name"`
	Price    Money  `json:"price"`
	Quantity int    `json:"quantity"`
}

// The days on which the measured store sold: its first, then the first of each
// half-year, then the day after its last.
var days = func() []int {
	first := time.Date(2011, 5, 31, 0, 0, 0, 0, time.UTC)
	var all []int
	for _, t := range []time.Time{
		first, date(2011, 7), date(2012, 1), date(2012, 7), date(2013, 1), date(2013, 7), date(2014, 1), date(2014, 7),
	} {
		all = append(all, int(t.Sub(first).Hours()/24))
	}
	return all
}()

func date(year int, month time.Month) time.Time {
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
}

func dayText(day int) string {
	return time.Date(2011, 5, 31, 0, 0, 0, 0, time.UTC).AddDate(0, 0, day).Format("2006-01-02T15:04:05")
}

// CustomerID returns the id of the customer c, which is its partition key too.
func (s *Store) CustomerID(c int) string { return s.id(kindCustomer, uint64(c)) }

// nature draws what a customer's stream begins with.
func (s *Store) nature(r *rand.Rand) (shop bool, orders int) {
	if r.Float64() < shopShare {
		return true, shopOrders.draw(r)
	}
	return false, personOrders.draw(r)
}

// orderDays draws the days of n orders, in order.
func orderDays(r *rand.Rand, n int) []int {
	drawn := make([]int, n)
	for i := range drawn {
		half := halfYears.draw(r)
		drawn[i] = days[half] + r.IntN(days[half+1]-days[half])
	}
	slices.Sort(drawn)
	return drawn
}

// Customer returns the customer c, 1 to Customers, as it is when all its orders
// are there.
func (s *Store) Customer(c int) Customer {
	r := s.random(kindCustomer, uint64(c))
	shop, orders := s.nature(r)
	first := orderDays(r, orders)[0]
	out := Customer{
		ID: s.CustomerID(c), Type: "customer", FirstName: pick(r, firstNames), LastName: pick(r, lastNames),
		PhoneNumber:  fmt.Sprintf("%03d-555-01%02d", 200+r.IntN(800), r.IntN(100)),
		CreationDate: dayText(max(first-r.IntN(60), 0)), Addresses: []Address{address(r)},
		SalesOrderCount: orders, Shop: shop,
	}
	out.CustomerID = out.ID
	out.EmailAddress = fmt.Sprintf("%s%d@adventure-works.com", strings.ToLower(plain(out.FirstName)), c)
	out.Password.Salt = letters(r, 4)
	size := customerBytes + r.IntN(2*customerSpread+1) - customerSpread
	out.Password.Hash = letters(r, max(size-len(JSON(out)), 0))
	if r.Float64() < secondAddress {
		out.Addresses = append(out.Addresses, address(r))
	}
	return out
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// plain leaves out what an e-mail address cannot hold.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r > 127 {
			return -1
		}
		return r
	}, name)
}

func letters(r *rand.Rand, n int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, n)
	for i := range out {
		out[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(out)
}

func address(r *rand.Rand) Address {
	at := pick(r, places)
	return Address{
		AddressLine1: fmt.Sprintf("%d %s", 1000+r.IntN(9000), pick(r, streets)),
		City:         at.city, State: at.state, Country: at.country, ZipCode: at.zip,
	}
}

// Orders returns the orders of the customer c in order of their dates.
func (s *Store) Orders(c int) []Order {
	r := s.random(kindCustomer, uint64(c))
	shop, n := s.nature(r)
	placed := orderDays(r, n)
	orders := make([]Order, n)
	for i := range orders {
		orders[i] = s.order(c, i, placed[i], shop)
	}
	return orders
}

// ordersPerCustomer bounds the ordinals of one customer's orders.
const ordersPerCustomer = 64

func (s *Store) order(c, i, day int, shop bool) Order {
	ordinal := uint64(c)*ordersPerCustomer + uint64(i)
	r := s.random(kindOrder, ordinal)
	out := Order{
		ID: s.id(kindOrder, ordinal), Type: "salesOrder", CustomerID: s.CustomerID(c), Day: day,
		OrderDate: dayText(day), ShipDate: dayText(day + 7),
	}
	lines, from := personLines, &s.persons
	if shop {
		lines, from = shopLines, &s.shops
	}
	for _, p := range from.draw(r, lines.draw(r)) {
		product := s.Product(p, nil)
		line := Line{SKU: product.SKU, Name: product.Name, Price: product.Price, Quantity: 1}
		switch {
		case shop && r.Float64() < 0.7:
			line.Price = product.Price.times(0.60)
		case shop:
			line.Price = product.Price.times(0.45 + 0.15*r.Float64())
		case r.Float64() < 0.04:
			line.Price = product.Price.times(0.89) // an older price list
		}
		if shop {
			line.Quantity = shopQuantity.draw(r)
		}
		out.Details = append(out.Details, line)
	}
	return out
}

// Arrival is one order at its place in time.
type Arrival struct {
	Day, Customer int
	Order         int // index into Orders(Customer)
}

// Arrivals returns the orders of the customers from to to, 1 to Customers both
// included, in order of date.
func (s *Store) Arrivals(from, to int) []Arrival {
	var all []Arrival
	for c := from; c <= to; c++ {
		r := s.random(kindCustomer, uint64(c))
		_, n := s.nature(r)
		for i, day := range orderDays(r, n) {
			all = append(all, Arrival{day, c, i})
		}
	}
	slices.SortFunc(all, func(a, b Arrival) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Customer, b.Customer), cmp.Compare(a.Order, b.Order))
	})
	return all
}
