// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// TestPoolHours: the hours of all tenants or of one, as JSON or CSV; one that is unknown is not found, and one
// without use has a row.
func TestPoolHours(t *testing.T) {
	b := billed(t)
	var all accounting.GPUHours
	b.get(t, "/api/v1/pools/hours?since=2h", &all)
	if all.Hours.String() != "2" || len(all.ByTenant) != 2 || all.ByTenant[0].Hours.String() != "1" || all.ByTenant[0].Sessions != 1 {
		t.Errorf("the hours are %+v", all)
	}
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"?since=2h&tenant=team-a":       {http.StatusOK, `"byTenant":[{"name":"team-a","hours":"1"`},
		"?since=5m&tenant=team-b":       {http.StatusOK, `"byTenant":[{"name":"team-b","hours":"0.083333"`},
		"?period=2020-01&tenant=team-b": {http.StatusOK, `"byTenant":[{"name":"team-b","hours":"0","invoiced":"0","sessions":0}]`},
		"?tenant=team-x":                {http.StatusNotFound, "there is no tenant team-x; tenants are team-a, team-b"},
		"?tenant=a/../b":                {http.StatusBadRequest, "no name of a tenant"},
		"?since=soon":                   {http.StatusBadRequest, "such as 7d"},
		"?period=soon":                  {http.StatusBadRequest, "want a month"},
		"?since=7d&period=2026-11":      {http.StatusBadRequest, "both since and period"},
		"?format=xml":                   {http.StatusBadRequest, "neither json nor csv"},
	} {
		if head, text := b.ask(t, asked{path: "/api/v1/pools/hours" + path}); head.StatusCode != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s, want %d with %s", path, head.StatusCode, text, want.code, want.text)
		}
	}
	head, text := b.ask(t, asked{path: "/api/v1/pools/hours?since=2h&format=csv"})
	if head.Header.Get("Content-Type") != "text/csv; charset=utf-8" || !strings.HasPrefix(head.Header.Get("Content-Disposition"), `attachment; filename="gpu-hours-`) {
		t.Errorf("the CSV has the head %v", head.Header)
	}
	if !strings.HasPrefix(text, "from,until,tenant,queue,model,source,hours,sessions\n") || strings.Count(text, ",not recorded,not recorded,sessions,1,1\n") != 2 {
		t.Errorf("the CSV is\n%s", text)
	}
}
