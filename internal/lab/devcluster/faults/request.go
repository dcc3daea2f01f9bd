// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// request is a request as the rules see it.
type request struct {
	traffic     Traffic // 0 if it is not for a resource
	verb        string
	resource    string
	subresource string
}

func (q *request) key() string { return q.verb + " " + q.resource + "/" + q.subresource }

// classify parses a request as the API server would.
func classify(r *http.Request) *request {
	f := apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := f.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return &request{verb: r.Method}
	}
	q := &request{verb: info.Verb, resource: info.Resource, subresource: info.Subresource}
	switch info.Verb {
	case "get", "list":
		q.traffic = Reads
	case "watch":
		q.traffic = Watches
	default:
		q.traffic = Writes
	}
	return q
}
