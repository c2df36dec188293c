package server

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/pipeline"
)

// post orders something and returns the status and the answer.
func post(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	res, err := client.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestPauseAndResume(t *testing.T) {
	folder, p := shortFolder(t), newPipeline(t, "emails")
	s := start(t, Config{Address: "127.0.0.1:0", Folder: folder, Pipelines: []*pipeline.Pipeline{p}})
	unix, socket := overSocket(folder)
	tcp, port := overTCP(s)
	run(t, p)
	waitFor(t, func() bool { return p.Ready() == nil })

	status, body := post(t, unix, socket+"/pipelines/emails/pause?reason=too%20hot")
	var one report
	if err := json.Unmarshal([]byte(body), &one); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if one.Pipeline != "emails" || one.State != "paused" || one.Reason != "too hot" || one.Since == nil {
		t.Errorf("%+v", one)
	}
	waitFor(t, func() bool { return p.Stats().OpenPartitions == 0 })
	if status, body := get(t, tcp, port+"/ready"); status != 503 || body != "emails: paused: too hot\n" {
		t.Errorf("ready: %d %q", status, body)
	}
	if _, body := get(t, tcp, port+"/metrics"); !strings.Contains(body, `perigee_pipeline_state{pipeline="emails",state="paused"} 1`) {
		t.Error("metrics do not say that it is paused")
	}

	_, body = get(t, unix, socket+"/pipelines")
	var all []report
	if err := json.Unmarshal([]byte(body), &all); err != nil || len(all) != 1 || all[0].Open != 0 || len(all[0].Sinks) != 1 {
		t.Errorf("%s: %v", body, err)
	}
	if status, body := post(t, unix, socket+"/pipelines/emails/forget?partition=a"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, body := post(t, unix, socket+"/pipelines/emails/resume"); status != 200 || strings.Contains(body, "too hot") {
		t.Errorf("%d %s", status, body)
	}
	waitFor(t, func() bool { return p.Ready() == nil })

	for _, test := range []struct {
		client *http.Client
		url    string
		status int
		body   string
	}{
		{unix, socket + "/pipelines/email/pause", 404, `{"error":"no pipeline is called \"email\"","hint":"this engine runs emails"}` + "\n"},
		{tcp, port + "/pipelines/emails/pause", 404, "404 page not found\n"},
	} {
		if status, body := post(t, test.client, test.url); status != test.status || body != test.body {
			t.Errorf("%s: %d %s", test.url, status, body)
		}
	}
}
