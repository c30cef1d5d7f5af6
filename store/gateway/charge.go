package gateway

import (
	"math"
	"strconv"

	"github.com/millrace/millrace/store"
)

// Request charges. They are a documented function of request and answer alone, so the same
// request on the same data has the same charge; see docs/gateway.md.
const (
	chargeRefusal  = 1.0  // of an error
	chargeResource = 1.0  // reading what is no item
	chargeDeclare  = 5.0  // making, changing and deleting what is no item
	chargeRead     = 1.0  // each begun KiB of an item that is read
	chargeWrite    = 5.0  // each begun KiB of an item that is written; 5 for a delete
	chargePage     = 2.0  // a page of a query or feed
	chargePageKiB  = 0.5  // and each begun KiB of its answer
	chargeLooked   = 0.01 // and, of a query, each item and index entry that it looked at
)

func kibs(bytes int) float64 { return float64(max((bytes+1023)/1024, 1)) }

func readCharge(bytes int) float64  { return chargeRead * kibs(bytes) }
func writeCharge(bytes int) float64 { return chargeWrite * kibs(bytes) }
func pageCharge(bytes int) float64  { return chargePage + chargePageKiB*kibs(bytes) }

// QueryCharge is the charge of a page of a query whose answer has so many bytes. Charges of
// pages add up.
func QueryCharge(m *store.QueryMetrics, bytes int) float64 {
	return pageCharge(bytes) + chargeLooked*float64(m.Items+m.Entries)
}

func formatCharge(charge float64) string {
	return strconv.FormatFloat(math.Round(charge*100)/100, 'f', -1, 64)
}
