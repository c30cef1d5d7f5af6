package gateway_test

import (
	"os"
	"testing"

	"github.com/millrace/millrace/store/script"
)

func TestMain(m *testing.M) {
	script.ServeIfAsked()
	os.Exit(m.Run())
}
