// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// TestTokenMasking: tokens are masked.
func TestTokenMasking(t *testing.T) {
	var log syncBuffer
	printEverything(t, io.Discard)
	klog.SetLoggerWithOptions(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(10), textlogger.Output(&log))), klog.ContextualLogger(true))
	HideTokens()
	const body = `{"kind":"TokenReview","spec":{"token":"c2VjcmV0"},"status":{"user":{}}}`
	klog.Background().V(8).Info("Request Body", "body", body)
	klog.Background().WithName("x").WithValues("body", body).WithCallDepth(0).Info("Response Body")
	klog.Background().Error(io.EOF, "Failed", "body", body)
	klog.InfoS("Request Body", "body", body)
	klog.Infof("plain %s", "line")
	klog.Background().Info("Another", "token", 7, "text", "kept", "err", io.EOF)
	got := log.String()
	if strings.Contains(got, "c2VjcmV0") {
		t.Errorf("the token was printed:\n%s", got)
	}
	if n := strings.Count(got, "<masked>"); n != 4 {
		t.Errorf("%d masked tokens, want 4:\n%s", n, got)
	}
	if !strings.Contains(got, `token=7 text="kept" err="EOF"`) || !strings.Contains(got, "plain line") {
		t.Errorf("something else was changed:\n%s", got)
	}
	for line := range strings.Lines(got) {
		if !strings.Contains(line, "redact_test.go") {
			t.Errorf("the caller's line is lost: %s", line)
		}
	}
}
