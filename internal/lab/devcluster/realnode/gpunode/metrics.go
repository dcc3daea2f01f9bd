// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrapeTimeout bounds one reading of a program's metrics.
const scrapeTimeout = time.Minute

// AgentMetrics reads the agent's metrics, by name.
func (l *Lab) AgentMetrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	page, err := Scrape(ctx, l.agentPort)
	if err != nil {
		return nil, fmt.Errorf("read the agent's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("read the agent's metrics: %w", err)
	}
	return families, nil
}

// ExporterMetrics reads the page of the exporter's metrics.
func (l *Lab) ExporterMetrics(ctx context.Context) (string, error) {
	page, err := Scrape(ctx, l.exporterPort)
	if err != nil {
		return "", fmt.Errorf("read the exporter's metrics: %w", err)
	}
	return page, nil
}

// Scrape reads the page of metrics that a program serves at a port of this machine.
func Scrape(ctx context.Context, port int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	url := "http://127.0.0.1:" + strconv.Itoa(port) + "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	page, err := io.ReadAll(resp.Body)
	return string(page), err
}
