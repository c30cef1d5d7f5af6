package gateway

import "net/http"

// listOffers answers as an account without provisioned throughput does: there is no
// offer. Millrace takes what the machine gives.
func (s *Server) listOffers(x *exchange) error { return answerList(x, "", "Offers", nil) }

func (s *Server) readOffer(x *exchange) error {
	return refuse(http.StatusNotFound, "there is no offer %s: Millrace has no provisioned throughput", clip(x.target.id))
}
