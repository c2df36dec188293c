# Ten processes, each popping one event at a time and inserting one row.
use strict; use warnings;
use Redis; use DBI; use JSON::XS;
my ($redis_at, $list, $mysql_at, $database) = @ARGV;
my ($host, $port) = split /:/, $mysql_at;
my @children;
for (1 .. 10) {
    my $pid = fork();
    die "fork: $!" unless defined $pid;
    if ($pid) { push @children, $pid; next }
    my $redis = Redis->new(server => $redis_at, encoding => undef);
    my $db = DBI->connect("DBI:mysql:database=$database;host=$host;port=$port", "root", "",
        { RaiseError => 1, AutoCommit => 1, mysql_enable_utf8mb4 => 1 });
    my $insert = $db->prepare("INSERT INTO events (id, event_name, email, domain, topic, campaign_number, time, url) VALUES (?,?,?,?,?,?,?,?)");
    while (1) {
        my (undef, $text) = $redis->blpop($list, 1);
        last unless defined $text;
        my $event = decode_json($text);
        next if $event->{event_name} eq "spam";
        my ($domain) = $event->{email} =~ /@(.+)$/ or next;
        my ($topic, $number) = $event->{campaign} =~ /^(.*)-(\d+)$/;
        (my $time = $event->{time}) =~ s/T(.*)Z/ $1/;
        $insert->execute($event->{id}, $event->{event_name}, $event->{email}, $domain, $topic, $number, $time, $event->{url});
    }
    exit 0;
}
my $failed = 0;
for (@children) { waitpid $_, 0; $failed ||= $? }
exit($failed ? 1 : 0);
