// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseReport(t *testing.T) {
	cases := map[string]struct {
		log     string
		want    *Report
		notYet  bool
		wantErr bool
	}{
		"a report": {
			log:  `2026-01-02T03:04:05.6Z stdout F {"env":{"A":"1 2"},"cpus":"0-1","mems":"0"}` + "\n",
			want: &Report{Env: map[string]string{"A": "1 2"}, CPUs: "0-1", Mems: "0"},
		},
		"a report and more":            {log: "t stdout F {\"cpus\":\"3\"}\nt stdout F x\n", want: &Report{CPUs: "3"}},
		"nothing yet":                  {log: "", notYet: true},
		"a line that is being written": {log: "t stdout F {\"cpus\"", notYet: true},
		"a part of a line":             {log: "t stdout P {}\n", wantErr: true},
		"no log of a container":        {log: "hello\n", wantErr: true},
		"another program's output":     {log: "t stdout F hello\n", wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseReport(tc.log)
			if errors.Is(err, ErrNoReport) != tc.notYet || (err != nil) != (tc.notYet || tc.wantErr) {
				t.Fatalf("error %v, want not yet: %t, another error: %t", err, tc.notYet, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadReport(t *testing.T) {
	const ran = "t stdout F {\"cpus\":\"3\"}\n"
	cases := map[string]struct {
		logs   map[string]string
		want   *Report
		notYet bool
	}{
		"no folder":                         {notYet: true},
		"the first run":                     {logs: map[string]string{"0.log": ran}, want: &Report{CPUs: "3"}},
		"made, but has not run":             {logs: map[string]string{"0.log": ""}, notYet: true},
		"made, and ran when restarted":      {logs: map[string]string{"0.log": "", "1.log": ran}, want: &Report{CPUs: "3", Restarts: 1}},
		"without a log before the restart":  {logs: map[string]string{"1.log": ran}, want: &Report{CPUs: "3", Restarts: 1}},
		"ran again: the first run":          {logs: map[string]string{"2.log": ran, "10.log": "t stdout F {}\n"}, want: &Report{CPUs: "3", Restarts: 2}},
		"a rotated log is of the same runs": {logs: map[string]string{"0.log": ran, "0.log.20260102": "t stdout F {}\n"}, want: &Report{CPUs: "3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "app")
			for log, text := range tc.logs {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, log), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := readReport(folder)
			if errors.Is(err, ErrNoReport) != tc.notYet || err != nil && !tc.notYet {
				t.Fatalf("error %v, want not yet: %t", err, tc.notYet)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add("t stdout F {}\n")
	f.Add("t stderr P {\n")
	f.Fuzz(func(t *testing.T, log string) {
		if r, err := parseReport(log); (r == nil) == (err == nil) {
			t.Errorf("report %v with error %v", r, err)
		}
	})
}
