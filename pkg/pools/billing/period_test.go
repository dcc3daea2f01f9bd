// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"strings"
	"testing"
	"time"
)

func TestParsePeriod(t *testing.T) {
	cases := map[string]struct {
		text    string
		want    string
		wantErr string
	}{
		"a month":                    {text: "2026-12", want: "2026-12-01T00:00:00Z/2027-01-01T00:00:00Z"},
		"a day, in a leap year":      {text: "2028-02-29", want: "2028-02-29T00:00:00Z/2028-03-01T00:00:00Z"},
		"two days":                   {text: "2026-11-01/2026-11-15", want: "2026-11-01T00:00:00Z/2026-11-15T00:00:00Z"},
		"two times of another zone":  {text: "2026-11-01T00:00:00+01:00/2026-12-01T00:00:00+01:00", want: "2026-10-31T23:00:00Z/2026-11-30T23:00:00Z"},
		"nothing":                    {wantErr: "want a month"},
		"no such month":              {text: "2026-13", wantErr: "month out of range"},
		"no such day":                {text: "2026-02-29", wantErr: "day out of range"},
		"an end before the start":    {text: "2026-11-02/2026-11-01", wantErr: "not after"},
		"no time":                    {text: "2026-11-02/2026-11-02", wantErr: "not after"},
		"a part of a second":         {text: "2026-11-02T00:00:00.5Z/2026-11-03", wantErr: "whole seconds"},
		"a year of five digits":      {text: "9999-12", wantErr: "four digits"},
		"only the beginning of two":  {text: "2026-11-02/", wantErr: "want a month"},
		"three":                      {text: "2026-11-02/2026-11-03/2026-11-04", wantErr: "want a month"},
		"words":                      {text: "last month", wantErr: "want a month"},
		"a text of no sensible size": {text: strings.Repeat("9", 1000), wantErr: "want a month"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePeriod(tc.text)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("%v: error %v, want %q in it", got, err, tc.wantErr)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Errorf("%s, %v; want %s", got, err, tc.want)
			}
		})
	}
	if p := (Period{Start: epoch, End: epoch.Add(time.Hour)}); p.Has(p.End) || !p.Has(p.Start) {
		t.Error("a period has its start and not its end")
	}
}
