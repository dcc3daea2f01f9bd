// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChartCommands: the commands that are told install the chart with its values, as InstallChart does,
// and a shell reads each path as one word.
func TestChartCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		options ChartOptions
		want    [2]string
	}{
		"the chart's own values": {
			ChartOptions{Helm: "/n/bin/helm", Chart: "/n/charts/nvtopo"},
			[2]string{"kubectl apply -f /tmp/c/namespace.yaml", "/n/bin/helm upgrade --install nvtopo /n/charts/nvtopo --namespace nvtopo-system --wait --timeout 3m"},
		},
		"a file of values": {
			ChartOptions{Helm: "/n/bin/helm", Chart: "/n/charts/nvtopo", Values: "/home/my 'own' values.yaml"},
			[2]string{"kubectl apply -f /tmp/c/namespace.yaml", `/n/bin/helm upgrade --install nvtopo /n/charts/nvtopo --namespace nvtopo-system --wait --timeout 3m --values '/home/my '\''own'\'' values.yaml'`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.options.Commands("/tmp/c")); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}
