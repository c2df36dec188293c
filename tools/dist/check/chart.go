package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// kubernetes has the oldest version that the chart is for, and the newest that has schemas.
var kubernetes = []string{"1.25.0", "1.37.0"}

// checkChart lints the chart, and renders it with several values. The results must fit the
// schemas of the oldest and the newest Kubernetes.
func (c *checker) checkChart() {
	chart, err := c.file("perigee-chart-VERSION.tgz")
	if err != nil {
		c.check("the chart", err)
		return
	}
	folder := filepath.Join(c.temporary, "chart")
	err = os.Mkdir(folder, 0o755)
	if err == nil {
		_, err = c.run(folder, nil, "tar", "xzf", chart)
	}
	if err == nil {
		_, err = c.helm("lint", "--strict", "--kube-version", kubernetes[0], filepath.Join(folder, "perigee"))
	}
	c.check("helm lint finds nothing", err)

	for name, values := range map[string]string{
		"defaults": "",
		"every value": `
config:
  tables: {events: {event: kind}}
  pipelines:
    events:
      source: {http: {listen: "0.0.0.0:8080", token: "${EVENTS_TOKEN}"}}
      batch: {events: 1000000}
      script: events.lua
      sink: {eventstore: {table: events}}
files:
  events.lua: |
    function main(event)
      return event
    end
env: [{name: EVENTS_TOKEN, value: "a token of a test"}]
envFrom: [{secretRef: {name: perigee}}]
imagePullSecrets: [{name: registry}]
replicas: 3
persistence: {storageClass: fast, size: 100Gi, annotations: {a: b}}
service: {annotations: {c: d}, extraPorts: [{name: events, port: 8080}]}
serviceAccount: {annotations: {e: f}}
podAnnotations: {g: h}
podLabels: {i: j}
nodeSelector: {kubernetes.io/arch: arm64}
tolerations: [{key: k, operator: Exists, effect: NoSchedule}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: l, operator: Exists}]}}]}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: high
serviceMonitor: {enabled: true, labels: {release: prometheus}}
`,
		"without a volume": `
config: |
  http: 0.0.0.0:4290
  pipelines: {p: {source: {generate: {events: 10}}, script: "function main(event) return event end", sink: {stdout: {}}}}
persistence: {enabled: false}
serviceAccount: {create: false}
`,
	} {
		c.check("the chart renders objects of Kubernetes: "+name, c.checkRendered(chart, folder, name, values))
	}
	for name, values := range map[string]string{
		"an unknown key": "replica: 2", "a port of root": "service: {port: 80}", "a size without meaning": "persistence: {size: big}", "a file in another folder": `files: {"../x": y}`,
	} {
		_, err := c.render(chart, folder, "wrong", values)
		if err == nil {
			err = errors.New("it is rendered")
		} else {
			err = wants(err.Error(), "values don't meet the specifications of the schema")
		}
		c.check("values are refused: "+name, err)
	}
}

func (c *checker) helm(args ...string) (string, error) {
	home := []string{"HOME=" + c.temporary, "HELM_PLUGINS=" + c.temporary}
	return c.run(c.temporary, home, c.path(".build/dist-tools/helm"), args...)
}

func (c *checker) render(chart, folder, name, values string) (string, error) {
	file := filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o644); err != nil {
		return "", err
	}
	return c.helm("template", "mail", chart, "--namespace", "events", "--kube-version", kubernetes[0], "--values", file)
}

func (c *checker) checkRendered(chart, folder, name, values string) error {
	text, err := c.render(chart, folder, name, values)
	if err != nil {
		return err
	}
	objects := filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".yaml")
	if err := os.WriteFile(objects, []byte(text), 0o644); err != nil {
		return err
	}
	schemas := c.path(".build/kubernetes-schemas/kubernetes_validate/kubernetes-json-schema") + "/{{.NormalizedKubernetesVersion}}-local{{.StrictSuffix}}/{{.ResourceKind}}{{.KindSuffix}}.json"
	for _, version := range kubernetes {
		// The type of a ServiceMonitor is below.
		out, err := c.run(folder, nil, c.path(".build/dist-tools/kubeconform"), "-strict", "-summary", "-skip", "ServiceMonitor", "-kubernetes-version", version, "-schema-location", schemas, objects)
		if err := errors.Join(err, wants(out, "Invalid: 0, Errors: 0")); err != nil {
			return err
		}
	}
	found := map[string]string{}
	for _, object := range strings.Split(text, "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(object), &kind); err != nil {
			return err
		}
		found[kind.Kind] = object
	}
	for _, kind := range []string{"StatefulSet", "Service", "ConfigMap"} {
		if found[kind] == "" {
			return fmt.Errorf("there is no %s", kind)
		}
	}
	monitor := new(monitoring.ServiceMonitor)
	if object := found["ServiceMonitor"]; object != "" {
		if err := yaml.UnmarshalStrict([]byte(object), monitor); err != nil {
			return fmt.Errorf("the ServiceMonitor: %w", err)
		}
		if len(monitor.Spec.Endpoints) != 1 || monitor.Spec.Endpoints[0].Port != "http" || len(monitor.Spec.Selector.MatchLabels) == 0 {
			return fmt.Errorf("the ServiceMonitor selects nothing: %+v", monitor.Spec)
		}
	} else if strings.Contains(values, "serviceMonitor") {
		return errors.New("there is no ServiceMonitor")
	}
	return c.checkConfiguration(folder, found["ConfigMap"])
}

// checkConfiguration has the program check the configuration that the chart made.
func (c *checker) checkConfiguration(folder, object string) error {
	var configuration struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(object), &configuration); err != nil {
		return err
	}
	own, err := os.MkdirTemp(folder, "configuration")
	if err != nil {
		return err
	}
	for name, text := range configuration.Data {
		if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	program := c.path(".build/dist/perigee-amd64")
	out, err := c.run(own, []string{"EVENTS_TOKEN=a token of a test"}, program, "check", "perigee.yaml")
	if !strings.Contains(configuration.Data["perigee.yaml"], "pipelines") {
		return wants(out, "pipeline") // it says that there are none
	}
	return errors.Join(err, wants(out, "http: 0.0.0.0:4290"))
}
