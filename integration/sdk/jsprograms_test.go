package sdk_test

import (
	"strconv"
	"testing"
)

// TestJSPrograms runs the cases of jsprograms, programs that stand on the SDK for JavaScript: LangChain's stores, the storage of the Bot
// Framework, and unstorage. Which requests they send is fixed in their packages. They do the same where the gateway is as strict as Cosmos DB.
func TestJSPrograms(t *testing.T) {
	if err := install("jsprograms"); err != nil {
		t.Skipf("the programs on @azure/cosmos cannot be had: %v", err)
	}
	for _, strict := range []bool{false, true} {
		t.Run("strict="+strconv.FormatBool(strict), func(t *testing.T) {
			s := start(t, true, "MILLRACE_GATEWAY_STRICT="+strconv.FormatBool(strict))
			report(t, nodeIn(t, "jsprograms", s, []string{"NODE_EXTRA_CA_CERTS=" + s.certificate()}, "run.js"), 21)
		})
	}
}
