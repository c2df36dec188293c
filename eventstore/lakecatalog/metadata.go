package lakecatalog

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/perigeedb/perigee/internal/s3client"
)

// metadataMax bounds a table's metadata.
const metadataMax = 64 << 20

// versionPattern matches metadata in a warehouse without a catalog, where the highest number is
// the newest.
var versionPattern = regexp.MustCompile(`^v(\d+)\.metadata\.json$`)

// readMetadata reads a table's metadata at an address. In a folder, it reads newer metadata if
// another engine has committed since.
func readMetadata(ctx context.Context, address string) (location string, metadata json.RawMessage, err error) {
	u, err := url.Parse(address)
	if err != nil { // which repeats the address
		return "", nil, errors.New("the address of the metadata cannot be parsed")
	}
	var content io.ReadCloser
	switch u.Scheme {
	case "", "file":
		path := newest(u.Path)
		location = strings.TrimSuffix(address, u.Path) + path
		content, err = os.Open(path)
	case "s3", "s3a":
		location = address
		content, err = openObject(ctx, u.Host, strings.TrimPrefix(u.Path, "/"))
	default:
		err = fmt.Errorf("the metadata is at %s, which is neither a folder nor S3", u.Redacted())
	}
	if err != nil {
		return "", nil, err
	}
	defer content.Close()
	var text io.Reader = content
	if strings.HasSuffix(location, ".gz.metadata.json") || strings.HasSuffix(location, ".metadata.json.gz") {
		if text, err = gzip.NewReader(content); err != nil {
			return "", nil, err
		}
	}
	metadata, err = io.ReadAll(io.LimitReader(text, metadataMax+1))
	switch {
	case err != nil:
		return "", nil, err
	case len(metadata) > metadataMax:
		return "", nil, fmt.Errorf("the metadata at %s is larger than %d MiB: let snapshots expire", location, metadataMax>>20)
	case !json.Valid(metadata):
		return "", nil, fmt.Errorf("the metadata at %s is not JSON", location)
	}
	return location, withScheme(metadata), nil
}

// withScheme gives the location of a table in a folder the scheme file, which some clients of
// catalogs need.
func withScheme(metadata json.RawMessage) json.RawMessage {
	fields := map[string]json.RawMessage{}
	var location string
	if json.Unmarshal(metadata, &fields) != nil || json.Unmarshal(fields["location"], &location) != nil || !strings.HasPrefix(location, "/") {
		return metadata
	}
	fields["location"], _ = json.Marshal("file://" + location)
	changed, err := json.Marshal(fields)
	if err != nil {
		return metadata
	}
	return changed
}

// newest returns the path of the newest metadata beside those at a path.
func newest(path string) string {
	for {
		found := versionPattern.FindStringSubmatch(filepath.Base(path))
		if found == nil {
			return path
		}
		number, err := strconv.ParseUint(found[1], 10, 64)
		if err != nil {
			return path
		}
		next := filepath.Join(filepath.Dir(path), fmt.Sprintf("v%d.metadata.json", number+1))
		if _, err := os.Stat(next); err != nil {
			return path
		}
		path = next
	}
}

// openObject opens an object of the S3 service that the environment names.
func openObject(ctx context.Context, bucket, key string) (io.ReadCloser, error) {
	c, err := s3client.New(s3client.Settings{}, os.LookupEnv, func(*s3client.Client) http.RoundTripper { return http.DefaultTransport })
	if err != nil {
		return nil, err
	}
	content, _, _, err := c.Core.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if code := minio.ToErrorResponse(err).Code; code == "NoSuchKey" || code == "NoSuchBucket" {
		err = errors.Join(fs.ErrNotExist, err)
	}
	return content, err
}
