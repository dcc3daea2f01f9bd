// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrapeTimeout bounds one reading of the agent's metrics.
const scrapeTimeout = 5 * time.Second

// AgentMetrics reads the agent's metrics, by name.
func (l *Lab) AgentMetrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	url := "http://127.0.0.1:" + strconv.Itoa(l.metricsPort) + "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("read the agent's metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the agent's metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the agent's metrics: %w", err)
	}
	return families, nil
}
