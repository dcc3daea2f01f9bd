// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
)

// maxUsage bounds the sessions of one answer.
const maxUsage = 500

// poolsDocument, billsDocument and usageDocument are the JSON output of the commands "pool top", "pool
// bill" and "pool usage".
type poolsDocument struct {
	Version int64                      `json:"version"`
	Items   []poolv1alpha1.ComputePool `json:"items"`
}

type billsDocument struct {
	Items []*accounting.Bill `json:"items"`
	// Problems are the accounts whose bill cannot be computed, or that have no price book, with the reason.
	Problems []string `json:"problems"`
}

type usageDocument struct {
	Items []poolv1alpha1.UsageRecord `json:"items"` // the newest first
	// More is the number of this month's sessions that are left out.
	More int `json:"more"`
}

func pools(st *state, _ *http.Request, _ *Caller) (any, error) {
	return poolsDocument{st.version, append([]poolv1alpha1.ComputePool{}, st.snapshot.Pools...)}, nil
}

// bills returns the amounts of all tenants from the controller's last summaries, or with the query tenant
// the bill of that tenant, computed from its own records.
func (s *Server) bills(_ *state, r *http.Request, _ *Caller) (any, error) {
	out := billsDocument{Items: []*accounting.Bill{}, Problems: []string{}}
	tenant, err := tenantOf(r)
	switch {
	case err != nil:
		return nil, err
	case tenant == "":
		bills, err := s.config.Ledger.Summaries(r.Context())
		if err != nil {
			return nil, ledgerRefusal(err)
		}
		for _, b := range bills {
			for _, wrong := range b.Wrong {
				out.Problems = append(out.Problems, b.Tenant+": "+wrong)
			}
			b.Wrong = nil
			out.Items = append(out.Items, b)
		}
		return out, nil
	}
	books, err := s.config.Ledger.Books(r.Context(), tenant, s.config.Clock.Now())
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, &Refusal{http.StatusNotFound, "tenant " + tenant + " has no account", "see /pools/bills for those that have one"}
	}
	if err != nil {
		return nil, ledgerRefusal(err)
	}
	b, err := accounting.BillOf(books)
	if err != nil {
		out.Problems = append(out.Problems, tenant+": "+err.Error())
		return out, nil //nolint:nilerr // it is shown
	}
	if b.NoPrices != "" {
		out.Problems = append(out.Problems, tenant+": "+b.NoPrices)
	}
	out.Items = append(out.Items, b)
	return out, nil
}

// tenantOf returns the query tenant; empty if there is none.
func tenantOf(r *http.Request) (string, error) {
	tenant := r.URL.Query().Get("tenant")
	if tenant != "" && len(validation.IsDNS1123Subdomain(tenant)) > 0 {
		return "", &Refusal{http.StatusBadRequest, "the query tenant is no name of a tenant", "ask for ?tenant=NAME"}
	}
	return tenant, nil
}

func (s *Server) usage(_ *state, r *http.Request, _ *Caller) (any, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return nil, err
	}
	records, err := s.config.Ledger.Records(r.Context(), tenant)
	if err != nil {
		return nil, ledgerRefusal(err)
	}
	records = accounting.Within(records, accounting.Month(s.config.Clock.Now()))
	slices.SortStableFunc(records, func(a, b poolv1alpha1.UsageRecord) int {
		if newer := b.Spec.Start.Compare(a.Spec.Start.Time); newer != 0 {
			return newer
		}
		return strings.Compare(a.Name, b.Name)
	})
	out := usageDocument{Items: []poolv1alpha1.UsageRecord{}, More: max(0, len(records)-maxUsage)}
	for _, u := range records[:min(len(records), maxUsage)] {
		u.ManagedFields = nil
		out.Items = append(out.Items, u)
	}
	return out, nil
}

// ledgerRefusal returns the response for usage or prices that cannot be read.
func ledgerRefusal(err error) error {
	switch reason := reasonOf(err); reason {
	case "NotFound":
		return &Refusal{http.StatusNotFound, "the cluster has no usage records or prices", "install nvtopo's pools, see docs/pools.md"}
	default:
		return &Refusal{http.StatusServiceUnavailable, "usage and prices cannot be read: " + reason, "see that the server's account may list them"}
	}
}
