// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
)

// hours returns the GPU hours of a period by tenant, queue and model, as `nvtopo pool usage` prints them.
func (s *Server) hours(_ *state, r *http.Request, _ *Caller) (any, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return nil, err
	}
	now := s.config.Clock.Now()
	period, err := hoursTime(r, now)
	if err != nil {
		return nil, &Refusal{http.StatusBadRequest, err.Error(), "ask for ?period=2026-11, ?period=START/END or ?since=7d"}
	}
	hours, err := s.config.Ledger.GPUHours(r.Context(), accounting.HoursQuery{Period: period, Tenant: tenant, Now: now})
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return nil, &Refusal{http.StatusNotFound, err.Error(), "ask without ?tenant= for all of them"}
	case err != nil:
		return nil, ledgerRefusal(err)
	}
	switch form := r.URL.Query().Get("format"); form {
	case "", "json":
		return hours, nil
	case "csv":
		return hoursCSV(hours)
	}
	return nil, &Refusal{http.StatusBadRequest, "the query format is neither json nor csv", "ask for ?format=csv"}
}

// hoursTime returns the requested period: the query since or period, or this month.
func hoursTime(r *http.Request, now time.Time) (billing.Period, error) {
	since, period := r.URL.Query().Get("since"), r.URL.Query().Get("period")
	switch {
	case since != "" && period != "":
		return billing.Period{}, errors.New("the query has both since and period")
	case since != "":
		return accounting.Since(since, now)
	case period != "":
		return billing.ParsePeriod(period)
	}
	return accounting.Month(now), nil
}

func hoursCSV(hours *accounting.GPUHours) (*prepared, error) {
	var b bytes.Buffer
	if err := accounting.WriteGPUHoursCSV(&b, hours); err != nil {
		return nil, err
	}
	p, err := prepareText(b.Bytes())
	if err != nil {
		return nil, err
	}
	p.file = "gpu-hours-" + hours.From.Format(time.DateOnly) + "-" + hours.Until.Format(time.DateOnly) + ".csv"
	return p, nil
}
