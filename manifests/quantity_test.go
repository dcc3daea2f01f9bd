// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"regexp"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// TestAdmittedQuantities: quantities that the CRD admits can be read. controller-gen's pattern
// admits what one cannot read, or not in time, and then no NodeGPUTopology of any node is read.
func TestAdmittedQuantities(t *testing.T) {
	text, err := FS.ReadFile("crd/topology.nvtopo.dev_nodegputopologies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Count(string(text), "x-kubernetes-int-or-string: true")
	pattern := regexp.MustCompile(`(?m)^ +pattern: (.*KMGTPE.*)$`).FindAllStringSubmatch(string(text), -1)
	if fields == 0 || len(pattern) != fields {
		t.Fatalf("%d quantities, %d patterns", fields, len(pattern))
	}
	for _, p := range pattern[1:] {
		if p[1] != pattern[0][1] {
			t.Fatalf("two patterns: %s and %s; is the CRD generated with scripts/quantities.sh?", pattern[0][1], p[1])
		}
	}
	admits := regexp.MustCompile(pattern[0][1])
	for value, want := range map[string]bool{
		"300G": true, "0": true, "85899345920": true, "80Gi": true, "1.5Ti": true, "500m": true, "1e3": true, "12E": true, "3E+2": true,
		"1e1.5": false, "1e-100000000": false, "1e400": false, "-1": false, "-0": false, "+1": false, "": false, "NaN": false, "1n": false,
		strings.Repeat("9", 20): false, "1.": false, ".5": false, "１": false,
	} {
		if got := admits.MatchString(value); got != want {
			t.Errorf("%q is admitted: %t, want %t", value, got, want)
			continue
		} else if !got {
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := resource.ParseQuantity(value)
		runtime.ReadMemStats(&after)
		// What takes minutes to read, such as 1e-100000000, is a number of many megabytes on the way.
		if took := after.TotalAlloc - before.TotalAlloc; err != nil || took > 64<<10 {
			t.Errorf("%q is admitted, and read with error %v in %d bytes of memory", value, err, took)
		}
	}
}
