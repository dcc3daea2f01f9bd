// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"runtime"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

// TestAbsurdInputs: absurd inputs are refused with little work.
func TestAbsurdInputs(t *testing.T) {
	tests := map[string]struct{ key, value, wantErr string }{
		"a bandwidth that is no number":                {MinBandwidthKey, "NaN", "want more than 0"},
		"an infinite bandwidth":                        {MinBandwidthKey, "+Inf", "want more than 0"},
		"a bandwidth beyond floating point":            {MinBandwidthKey, "1e309", "is not a number"},
		"a negative bandwidth":                         {MinBandwidthKey, "-1", "want more than 0"},
		"a bandwidth of a quarter of a megabyte":       {MinBandwidthKey, strings.Repeat("9", 256<<10), "262144 bytes, at most 1024 are read"},
		"full-width digits":                            {MinBandwidthKey, "１００", "is not a number"},
		"memory whose exponent takes minutes to read":  {MinGPUMemoryKey, "1e-100000000", "the exponent is out of range"},
		"memory with leading zeros in its exponent":    {MinGPUMemoryKey, "1E+000000400", "the exponent is out of range"},
		"memory with more digits than any number":      {MinGPUMemoryKey, strings.Repeat("1", 1000), "at most 24 are read"},
		"a list of models without end":                 {GPUModelKey, strings.Repeat("A,", 500) + "A", "more than 16 models"},
		"a model of 200 KiB":                           {GPUModelKey, strings.Repeat("A", 200<<10), "204800 bytes"},
		"a link class with a mark that turns the text": {MinLinkKey, "\u202eNV4", "NV4"},
		"a policy in letters that only look like ours": {TopologyPolicyKey, "rеstricted", "stricted"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, options := testobj.Pod("p").GPUs(1).Annotation(tc.key, tc.value).Obj(), testOptions()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(pod, options)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), tc.key) {
				t.Errorf("error %.200v, want one with the key and %q", err, tc.wantErr)
			}
			if err != nil && len(err.Error()) > 8<<10 {
				t.Errorf("the reason has %d bytes", len(err.Error()))
			}
			// What takes minutes to read is a number of many megabytes on the way.
			if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
				t.Errorf("reading it took %d bytes of memory", took)
			}
		})
	}
}
